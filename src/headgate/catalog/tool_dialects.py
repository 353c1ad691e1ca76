"""Serves a tool in the schema dialect of a client, and restores the arguments that a model wrote under it."""

import json
from enum import StrEnum
from typing import Any, Final

import msgspec

from headgate.catalog.definition_text import single_member
from headgate.protocol.json_scan import JsonMember, object_members, remove_member, replace_member
from headgate.schema.dereference import UnsupportedSchema
from headgate.schema.dialect_writers import (
    GeminiSchemaWriter,
    StrictSchemaWriter,
    arguments_shape,
    is_json_text,
    nesting_level_inside,
)
from headgate.schema.keywords import SchemaNode, is_of_type, json_type_of
from headgate.schema.shape_reader import read_shapes
from headgate.schema.shapes import SchemaChanges, ShapeUnion, ValueShape


class Dialect(StrEnum):
    """A subset of JSON Schema that a model provider accepts."""

    PLAIN = "plain"
    GEMINI = "gemini"
    # Strict mode of OpenAI.
    OPENAI = "openai"


def dialect_of(client_name: str) -> Dialect:
    """The dialect for a client of that `clientInfo.name`: PLAIN unless it is known to need another."""
    # Clients that pass schemas on to a provider that refuses parts of them; evidence in docs/decisions/0026.
    # The second is followed by the name of the server; its releases drop tools that they cannot read.
    is_gemini = client_name == "antigravity-client" or client_name.startswith("gemini-cli-mcp-client-")
    return Dialect.GEMINI if is_gemini else Dialect.PLAIN


# Parsing a larger one would delay other clients.
_LONGEST_SCHEMA: Final = 128 * 1024
# More digits take long to parse and are never meant.
_MOST_DIGITS: Final = 310


def find_input_schema(text: str) -> tuple[JsonMember, SchemaNode]:
    """The position of the input schema in a definition, and the schema; raises ValueError."""
    member = single_member(text, "inputSchema")
    if member is None:
        raise UnsupportedSchema("no inputSchema")
    if member.end - member.start > _LONGEST_SCHEMA:
        raise UnsupportedSchema(f"more than {_LONGEST_SCHEMA} characters")
    schema = parse_json(text[member.start : member.end])
    if not isinstance(schema, dict):
        raise UnsupportedSchema("no object")
    return member, schema


def parse_json(text: str) -> Any:
    """A JSON value; an integer that is too large is infinite. Raises ValueError."""

    def integer(digits: str) -> int | float:
        return int(digits) if len(digits) < _MOST_DIGITS else float("inf")

    def refuse_constant(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_int=integer, parse_constant=refuse_constant)


def encode_json(value: Any) -> str:
    """JSON; raises ValueError for an infinite number."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which only an escape can express.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


# Members that have no effect if they are empty.
_EMPTY: Final = {Dialect.GEMINI: ("properties", "required"), Dialect.OPENAI: ("required",)}


class AdaptedTool(msgspec.Struct, frozen=True):
    """A tool in the dialect of a client, and the changes."""

    definition: bytes
    changes: tuple[str, ...] = ()


def adapt_tool(definition: bytes, dialect: Dialect) -> AdaptedTool:
    """The tool in that dialect; unchanged with the reason as the only change if it cannot be expressed."""
    if dialect is Dialect.PLAIN:
        return AdaptedTool(definition)
    try:
        text = definition.decode()
        member, schema = find_input_schema(text)
        changes = SchemaChanges()
        writer = (GeminiSchemaWriter if dialect is Dialect.GEMINI else StrictSchemaWriter)(changes)
        written = writer.write_root(read_shapes(schema, changes))
        if _without_empty(written, dialect) == _without_empty(schema, dialect):
            return AdaptedTool(definition)
        # Changes without a line of their own: a null default, or an example.
        lines = changes.lines() or ("inputSchema: written in the words of the dialect",)
        return AdaptedTool(replace_member(text, member, encode_json(written)).encode(), lines)
    except (ValueError, RecursionError) as error:
        reason = str(error)[:200] if isinstance(error, UnsupportedSchema) else "it cannot be read"
        return AdaptedTool(definition, (f"inputSchema: served as it is: {reason}",))


def _without_empty(schema: SchemaNode, dialect: Dialect) -> SchemaNode:
    return {
        key: value for key, value in schema.items() if value not in ({}, []) or key not in _EMPTY[dialect]
    }


def is_restorable(short: bytes, definition: bytes) -> bool:
    """Whether `restore_arguments` by the definition is right for arguments under the strict form of `short`.

    It is not if the two name different arguments, or if a text may hold JSON in only one of them. Never
    raises.
    """
    try:
        short_form, full_form = (_arguments_shape(form).properties for form in (short, definition))
    except (ValueError, RecursionError):
        return False
    if short_form.keys() != full_form.keys():
        return False
    return all(_shapes_agree(inner, full_form[name], 2) for name, inner in short_form.items())


def _arguments_shape(definition: bytes) -> ValueShape:
    return arguments_shape(read_shapes(find_input_schema(definition.decode())[1], SchemaChanges()))


def _shapes_agree(short_shape: ShapeUnion, full_shape: ShapeUnion, level: int) -> bool:
    # If the tool takes no text, every text is decoded as JSON.
    if _takes_text(full_shape):
        kinds = {shape.kind for shape in full_shape.shapes}
        texts, own_texts = (
            {one.kind for one in union.shapes if is_json_text(one, nesting_level_inside(union, level))}
            for union in (short_shape, full_shape)
        )
        if bool(texts) != bool(own_texts) or not texts & kinds <= own_texts:
            return False
    lists, own_lists = (
        [shape for shape in union.shapes if shape.kind == "array"] for union in (short_shape, full_shape)
    )
    if not lists or not own_lists:
        return True
    if len(lists) + len(own_lists) > 2:
        # The alternative is found by its contents, which differ between the two.
        return False
    items, own_items = lists[0].items, own_lists[0].items
    if items is None:
        # The whole array is JSON in a text.
        return True
    return own_items is not None and _shapes_agree(items, own_items, level + 1)


# Of one call's arguments; larger arguments are passed on unchanged.
_MOST_VALUES: Final = 20_000
_JSON_BEGINS: Final = ("{", "[", '"')


def restore_arguments(arguments: bytes, definition: bytes, dialect: Dialect) -> bytes:
    """The arguments for the tool's own schema: without nulls for omitted members, JSON in texts decoded.

    Never raises: arguments that cannot be parsed, or need no change, are returned unchanged.
    """
    if dialect is not Dialect.OPENAI:
        return arguments
    try:
        text = arguments.decode()
        found = _ArgumentRestorer().arguments(text, _arguments_shape(definition))
        return arguments if found == text else found.encode()
    except (ValueError, RecursionError):
        return arguments


class _ArgumentRestorer:
    def __init__(self) -> None:
        self._values = 0
        # Whether the values are from a text: a text in them is JSON only if no text is allowed there.
        self._literal = False

    def arguments(self, text: str, shape: ValueShape) -> str:
        # From last to first, so that the positions of the others stay valid.
        for member in reversed(list(object_members(text))):
            inner = shape.properties.get(member.key)
            # A plain text may be a whole file, which is not decoded.
            if inner is None or (
                text[member.start] == '"' and not _types_in_text(inner, nesting_level_inside(inner, 2))
            ):
                continue
            value = parse_json(text[member.start : member.end])
            if _is_left_out(value, inner, member.key, shape):
                text = remove_member(text, member)
                continue
            found = self._value(value, inner, 2)
            if found is not value:
                text = replace_member(text, member, encode_json(found))
        return text

    def _value(self, value: Any, choice: ShapeUnion, level: int) -> Any:
        """The restored value; the same object if nothing changes."""
        self._count()
        level = nesting_level_inside(choice, level)
        if isinstance(value, dict | list):
            return self._container(value, choice, level)
        if not isinstance(value, str) or (self._literal and _takes_text(choice)):
            return value
        found = _parse_json_text(value, choice, level)
        if not isinstance(found, str):
            before, self._literal = self._literal, True
            found = self._container(found, choice, level)
            self._literal = before
        return found

    def _container(self, value: Any, choice: ShapeUnion, level: int) -> Any:
        shape = self._shape_of(value, choice, level)
        if shape is None:
            return value
        if isinstance(value, list):
            if shape.items is None:
                return value
            items = [self._value(old, shape.items, level + 1) for old in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        found: dict[str, Any] = {}
        for name, old in value.items():
            inner = shape.properties.get(name)
            if inner is None:
                found[name] = old
            elif not _is_left_out(old, inner, name, shape):
                found[name] = self._value(old, inner, level + 1)
        changed = len(found) < len(value) or any(found[name] is not old for name, old in value.items())
        return found if changed else value

    def _count(self) -> None:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise UnsupportedSchema(f"more than {_MOST_VALUES} values")

    def _shape_of(self, value: Any, choice: ShapeUnion, level: int) -> ValueShape | None:
        """The most likely alternative: of objects preferably the one with exactly these members."""
        likely = [
            shape
            for shape in choice.shapes
            if shape.kind == json_type_of(value) and not is_json_text(shape, level)
        ]
        if len(likely) < 2:
            return likely[0] if likely else None
        if isinstance(value, dict):
            likely.sort(key=lambda shape: shape.properties.keys() != value.keys())
        return next((shape for shape in likely if self._fits(value, shape, level)), None)

    def _fits(self, value: Any, shape: ValueShape, level: int) -> bool:
        self._count()
        if is_json_text(shape, level):
            return is_of_type(value, shape.kind) if self._literal else isinstance(value, str)
        if not is_of_type(value, shape.kind):
            return False
        if isinstance(value, dict):
            return all(
                name in shape.properties and self._fits_any(inner, shape.properties[name], level + 1)
                for name, inner in value.items()
            )
        if isinstance(value, list) and shape.items is not None:
            # An element of an array cannot be omitted.
            return all(
                self._fits_any(inner, shape.items, level + 1) if inner is not None else shape.items.null
                for inner in value
            )
        values = shape.keywords.get("enum")
        return values is None or value in values

    def _fits_any(self, value: Any, choice: ShapeUnion, level: int) -> bool:
        level = nesting_level_inside(choice, level)
        # Where null is not allowed, it stands for an omitted member.
        return value is None or any(self._fits(value, shape, level) for shape in choice.shapes)


def _is_left_out(value: Any, choice: ShapeUnion, name: str, shape: ValueShape) -> bool:
    # Omitting an optional member is always valid.
    return value is None and name not in shape.required and (choice.guessed or not choice.null)


def _types_in_text(choice: ShapeUnion, level: int) -> set[str]:
    """The types that may be written as JSON in a text at that place.

    Where no text is allowed, these are objects and arrays: a client that saw the slim form did not know their
    contents and wrote them as a text.
    """
    takes_text = _takes_text(choice)
    return {
        shape.kind
        for shape in choice.shapes
        if is_json_text(shape, level) or (shape.kind in ("object", "array") and not takes_text)
    }


def _takes_text(choice: ShapeUnion) -> bool:
    return any(shape.kind == "string" for shape in choice.shapes)


def _parse_json_text(value: str, choice: ShapeUnion, level: int) -> Any:
    kinds = _types_in_text(choice, level)
    is_beside = _takes_text(choice)
    if not kinds or (is_beside and not value.lstrip().startswith(_JSON_BEGINS)):
        return value
    try:
        found = parse_json(value)
    except (ValueError, RecursionError):
        return value
    if is_beside and isinstance(found, str):
        # A text that looks like JSON is quoted, to distinguish it from JSON.
        return found if found.lstrip().startswith(_JSON_BEGINS) else value
    return found if json_type_of(found) in kinds else value
