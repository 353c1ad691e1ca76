"""Makes alternatives fewer: those that say nothing of their own, and those that differ in little."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.dialects.shapes import Choice, Node, Shape
from headgate.catalog.dialects.wording import described, told_examples

# An alternative that has nothing else says no more than which members are needed.
_THIN: Final = {"required", "not", "type", "title", "description", "$comment"}


def thin(branches: Sequence[Any], rest: Node) -> bool:
    """Whether the alternatives only say which of the members are needed that `rest` describes."""
    return "properties" in rest and all(
        isinstance(one, dict) and _THIN.issuperset(one) and ("required" in one or "not" in one)
        for one in branches
    )


def joined(choices: Sequence[Choice]) -> tuple[Shape, ...]:
    """The shapes of all, without those that were there before; bare lists of values become one list."""
    found: list[Shape] = []
    plain: set[str] = set()
    # Where the list of each type stands, and its values.
    lists: dict[str, tuple[int, dict[str, Any]]] = {}
    for choice in choices:
        for shape in choice.shapes:
            words = shape.words or (choice.words if len(choice.shapes) == 1 else {})
            if _says_something(words) or shape.kind in ("object", "array"):
                found.append(msgspec.structs.replace(shape, words=words))
            elif shape.said.keys() == {"enum"}:
                place, values = lists.setdefault(shape.kind, (len(found), {}))
                values.update((repr(value), value) for value in shape.said["enum"])
                if place == len(found):
                    found.append(shape)
            elif shape.said or shape.kind not in plain:
                found.append(shape)
                plain.update(() if shape.said else (shape.kind,))
    for kind, (place, values) in lists.items():
        found[place] = Shape(kind, {"enum": list(values.values())})
    return tuple(found)


def _says_something(words: Node) -> bool:
    """Whether a model would read any of it: what is empty, or no text, is written by no dialect."""
    return words.get("default") is not None or bool(described(words, told_examples(words, default=False)))


def together(branches: Sequence[Node], rest: Node) -> Node:
    """One object with the members of all alternatives, of which those are required that all require."""
    properties: dict[str, list[Any]] = {}
    required: list[set[str]] = []
    for branch in branches:
        inner = branch.get("properties")
        for name, schema in inner.items() if isinstance(inner, dict) else ():
            known = properties.setdefault(name, [])
            if schema not in known[-3:]:
                known.append(schema)
        names = branch.get("required")
        required.append(
            {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        )
    own = rest.get("properties")
    own = own if isinstance(own, dict) else {}
    extra = {name: _either(schemas) for name, schemas in properties.items() if name not in own}
    needed = rest.get("required")
    common = set.intersection(*required) if required else set()
    return rest | {
        "properties": own | extra,
        "required": [*(needed if isinstance(needed, list) else []), *sorted(common)],
    }


def _either(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
