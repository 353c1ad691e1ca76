"""What a part of a schema says in words: about itself, and a line about each of its children."""

from typing import Final

import msgspec
from msgspec import Raw

from headgate.catalog.expansion.saying import whole
from headgate.catalog.expansion.schema import Child, Part, Schema

_OWN: Final = ("title", "description", "type", "default", "examples")
_MOST_CHILDREN: Final = 200
_MOST_TYPES: Final = 8


def prose_of(schema: Schema, part: Part) -> bytes:
    """A JSON object, short: what `mode` schema has is left out."""
    told: dict[str, object] = {} if part.container else dict(_said(schema, part.value, _OWN))
    children = schema.children(part, _MOST_CHILDREN)
    if children.first:
        told["children"] = {whole(name): _line(schema, child) for name, child in children.first.items()}
    if children.total > len(children.first):
        told["more"] = children.total - len(children.first)
    return msgspec.json.encode(told)


def _line(schema: Schema, child: Child) -> dict[str, object]:
    line: dict[str, object] = dict(_said(schema, child.value, ("type",)))
    if child.required:
        line["required"] = True
    return line | _said(schema, child.value, ("description",))


def _said(schema: Schema, value: bytes, keywords: tuple[str, ...]) -> dict[str, Raw]:
    """What the schema says under these keywords, or what it refers to says in its place."""
    said: dict[str, Raw] = {}
    for face in schema.faces.itself(value):
        for keyword in keywords:
            member = schema.levels.member(face.value, keyword)
            if member and keyword not in said:
                said[keyword] = Raw(member)
    if "type" in keywords and "type" not in said:
        said |= _type_of_branches(schema, value)
    return {keyword: said[keyword] for keyword in keywords if keyword in said}


def _type_of_branches(schema: Schema, value: bytes) -> dict[str, Raw]:
    """The types of what may be one thing or another."""
    types: dict[bytes, None] = {}
    for face in schema.faces.near(value):
        kind = schema.levels.member(face.value, "type")
        if kind[:1] == b'"':
            types[kind] = None
        if len(types) == _MOST_TYPES:
            break
    if not types:
        return {}
    return {"type": Raw(next(iter(types)) if len(types) == 1 else b"[" + b",".join(types) + b"]")}
