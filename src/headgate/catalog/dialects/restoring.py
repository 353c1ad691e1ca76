"""Turns what a model wrote under a dialect's schema into what the tool's own schema asks for."""

from typing import Any, Final

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.dialects.opening import Unsayable
from headgate.catalog.dialects.reading import read
from headgate.catalog.dialects.shapes import Choice, Shape, is_a, kind_of
from headgate.catalog.dialects.source import encoded, parsed, schema_in
from headgate.catalog.dialects.strict import is_text, level_inside, root_of
from headgate.protocol.json_members import object_members, remove_member, replace_member

# Of one call's arguments; who sends more sends it as it is.
_MOST_VALUES: Final = 20_000
_JSON_BEGINS: Final = ("{", "[", '"')


def restored(arguments: bytes, definition: bytes, dialect: Dialect) -> bytes:
    """The arguments for the tool's own schema: nulls that mean "left out" gone, and JSON taken out of texts.

    Never raises: what cannot be read, or is right already, comes back as it is.
    """
    if dialect is not Dialect.OPENAI:
        return arguments
    try:
        shape = root_of(read(schema_in(definition.decode())[1], Changes()))
        text = arguments.decode()
        found = _Restoring().arguments(text, shape)
        return arguments if found == text else found.encode()
    except (ValueError, RecursionError):
        return arguments


class _Restoring:
    def __init__(self, values: int = 0, *, literal: bool = False) -> None:
        """What came out of a text is `literal`: no text in it stands for JSON unless no text is wanted."""
        self._values = values
        self._literal = literal

    def arguments(self, text: str, shape: Shape) -> str:
        # From the last to the first, so that the places of the others stay right.
        for member in reversed(list(object_members(text))):
            inner = shape.properties.get(member.key)
            # A text that is one may be a whole file, which is not read twice.
            if inner is None or (text[member.start] == '"' and not _held(inner, level_inside(inner, 2))):
                continue
            value = parsed(text[member.start : member.end])
            if _is_left_out(value, inner, member.key, shape):
                text = remove_member(text, member)
                continue
            found = self._value(value, inner, 2)
            if found is not value:
                text = replace_member(text, member, encoded(found))
        return text

    def _value(self, value: Any, choice: Choice, level: int) -> Any:
        """The value for one place; the same object where there is nothing to change."""
        self._count()
        level = level_inside(choice, level)
        if isinstance(value, str):
            return self._text(value, choice, level)
        if isinstance(value, dict | list):
            return self._made_of(value, choice, level)
        return value

    def _text(self, value: str, choice: Choice, level: int) -> Any:
        if self._literal and _takes_text(choice):
            return value
        found = _out_of_text(value, choice, level)
        if isinstance(found, str):
            return found
        inner = _Restoring(self._values, literal=True)
        found = inner._made_of(found, choice, level)
        self._values = inner._values
        return found

    def _made_of(self, value: Any, choice: Choice, level: int) -> Any:
        shape = self._shape_of(value, choice, level)
        if shape is None:
            return value
        if isinstance(value, dict):
            return self._object(value, shape, level)
        return self._array(value, shape.items, level) if shape.items is not None else value

    def _count(self) -> None:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise Unsayable(f"more than {_MOST_VALUES} values")

    def _object(self, value: dict[str, Any], shape: Shape, level: int) -> Any:
        found: dict[str, Any] = {}
        changed = False
        for name, old in value.items():
            inner = shape.properties.get(name)
            if inner is None:
                found[name] = old
            elif _is_left_out(old, inner, name, shape):
                changed = True
            else:
                found[name] = self._value(old, inner, level + 1)
                changed |= found[name] is not old
        return found if changed else value

    def _array(self, value: list[Any], items: Choice, level: int) -> Any:
        found = [self._value(old, items, level + 1) for old in value]
        return found if any(new is not old for new, old in zip(found, value, strict=True)) else value

    def _shape_of(self, value: Any, choice: Choice, level: int) -> Shape | None:
        """The alternative that a model had in mind: of objects best the one with just these members."""
        likely = [
            shape for shape in choice.shapes if shape.kind == kind_of(value) and not is_text(shape, level)
        ]
        if len(likely) < 2:
            return likely[0] if likely else None
        if isinstance(value, dict):
            likely.sort(key=lambda shape: shape.properties.keys() != value.keys())
        return next((shape for shape in likely if self._fits(value, shape, level)), None)

    def _fits(self, value: Any, shape: Shape, level: int) -> bool:
        self._count()
        if is_text(shape, level):
            return is_a(value, shape.kind) if self._literal else isinstance(value, str)
        if not is_a(value, shape.kind):
            return False
        if isinstance(value, dict):
            return all(
                name in shape.properties and self._fits_any(inner, shape.properties[name], level + 1)
                for name, inner in value.items()
            )
        if isinstance(value, list) and shape.items is not None:
            # Nothing can be left out of a list.
            return all(
                self._fits_any(inner, shape.items, level + 1) if inner is not None else shape.items.null
                for inner in value
            )
        values = shape.said.get("enum")
        return values is None or value in values

    def _fits_any(self, value: Any, choice: Choice, level: int) -> bool:
        level = level_inside(choice, level)
        # Where null is not allowed it stands for a member that is left out.
        return value is None or any(self._fits(value, shape, level) for shape in choice.shapes)


def _is_left_out(value: Any, choice: Choice, name: str, shape: Shape) -> bool:
    # Without a member that need not be there it is right in any case.
    return value is None and name not in shape.required and (choice.guessed or not choice.null)


def _held(choice: Choice, level: int) -> set[str]:
    """The types of what may be written as JSON in a text at that place.

    Where no text is wanted these are all that JSON has braces for: a client that saw the tool in fewer words
    was not told what is inside, and wrote that as a text.
    """
    takes_text = _takes_text(choice)
    return {
        shape.kind
        for shape in choice.shapes
        if is_text(shape, level) or (shape.kind in ("object", "array") and not takes_text)
    }


def _takes_text(choice: Choice) -> bool:
    return any(shape.kind == "string" for shape in choice.shapes)


def _out_of_text(value: str, choice: Choice, level: int) -> Any:
    kinds = _held(choice, level)
    is_beside = _takes_text(choice)
    if not kinds or (is_beside and not value.lstrip().startswith(_JSON_BEGINS)):
        return value
    try:
        found = parsed(value)
    except (ValueError, RecursionError):
        return value
    if is_beside and isinstance(found, str):
        # A text that looks like JSON is put into quotes, so that it can be told from JSON.
        return found if found.lstrip().startswith(_JSON_BEGINS) else value
    return found if kind_of(found) in kinds else value
