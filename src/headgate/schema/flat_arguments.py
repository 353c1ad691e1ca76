"""Reduces an input schema to its argument names, types and required names; the result accepts whatever the
schema accepts.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from headgate.schema.accepted_types import AcceptedTypes

# A tool with no more arguments shows the types of all, whatever was said elsewhere.
_FEW: Final = 4
# Of real tools none has half as many arguments, or a name half as long.
_MOST_ARGUMENTS: Final = 500
_LONGEST_NAME: Final = 128
# Optional arguments have their types up to this many arguments in all, and only their names beyond.
_MOST_TYPED: Final = 5
_MOST_CHOICES: Final = 6
_LONGEST_CHOICES: Final = 40
_MOST_BRANCHES: Final = 16
_STRING_TYPES: Final = ({"type": "string"}, {"type": ("string", "null")})
_DEEPEST_LIST: Final = 3
_DEEPEST_BRANCH: Final = 8
_COMBINED: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"])


class FlatSchema(NamedTuple):
    """The schema, the arguments that it is made from, and how many of them it does not name."""

    schema: dict[str, Any]
    arguments: Mapping[str, Any]
    left_out: int


def flatten_arguments(
    schema: Any, shared_names: Sequence[str] = (), *, every_type: bool = False
) -> FlatSchema:
    """Accepts whatever `schema` does, and names every argument.

    Of a tool with many arguments, the optional ones that were `said` elsewhere or come late have no type.
    With `every_type` all have one, and lists say what the lists inside them contain. Without it, arguments of
    a schema that nobody wrote by hand are left out: too many, or with too long a name.
    """
    types = AcceptedTypes(schema)
    every, required = _arguments(schema, types)
    arguments = every if every_type else _bounded(every, required)
    needed = [name for name in required if name in arguments]
    typed = arguments.keys() if every_type else _typed(arguments, needed, shared_names)
    lists = _DEEPEST_LIST if every_type else 0
    short: dict[str, Any] = {"type": "object"}
    if arguments:
        # In the order of the server, which mostly begins with what matters.
        short["properties"] = {
            name: _argument(inner, types, lists) if name in typed else {} for name, inner in arguments.items()
        }
        if not every_type and len(arguments) > _FEW:
            _drop_string_types(short["properties"], needed)
    if needed:
        short["required"] = needed
    return FlatSchema(short, arguments, len(every) - len(arguments))


def _bounded(arguments: Mapping[str, Any], required: Mapping[str, None]) -> Mapping[str, Any]:
    named = [name for name in (*required, *arguments) if name in arguments and len(name) <= _LONGEST_NAME]
    kept = set(list(dict.fromkeys(named))[:_MOST_ARGUMENTS])
    return {name: inner for name, inner in arguments.items() if name in kept}


def _drop_string_types(properties: dict[str, Any], needed: Sequence[str]) -> None:
    """An optional argument without a type is taken for a text, so texts need none."""
    for name in properties.keys() - set(needed):
        if properties[name] in _STRING_TYPES:
            properties[name] = {}


def _typed(arguments: Mapping[str, Any], needed: Sequence[str], shared_names: Sequence[str]) -> Set[str]:
    required = set(needed)
    optional = [name for name in arguments if name not in required]
    if len(arguments) > _FEW:
        optional = [name for name in optional if name not in shared_names]
    return {*needed, *optional[: max(0, _MOST_TYPED - len(needed))]}


def stub_names(schema: Any, letters: int) -> list[str]:
    """As many arguments as `letters` have room for, the required ones first."""
    arguments, required = _arguments(schema, AcceptedTypes(schema))
    named: list[str] = []
    for name in dict.fromkeys([*(one for one in required if one in arguments), *arguments]):
        letters -= len(name)
        if letters < 0:
            break
        named.append(name)
    return named


def optional_arguments(schema: Any) -> list[str]:
    """The arguments that may be left out of a tool that has many."""
    arguments, required = _arguments(schema, AcceptedTypes(schema))
    return [name for name in arguments if name not in required] if len(arguments) > _FEW else []


def _arguments(schema: Any, types: AcceptedTypes) -> tuple[Mapping[str, Any], Mapping[str, None]]:
    """What the tool can be given, and which of that it must be given."""
    own = _object(schema)
    if own.keys().isdisjoint(_COMBINED):
        return _object(own.get("properties")), _names(own.get("required"))
    arguments: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in [own, *_list(own.get("allOf"))]:
        inner = _object(types.resolve(part))
        for name, argument in _object(inner.get("properties")).items():
            arguments.setdefault(name, argument)
        required |= _names(inner.get("required"))
    # Beside a reference and in one branch of several an argument is named, but its type is not known.
    for name in _branch_names(own, types, _DEEPEST_BRANCH):
        arguments.setdefault(name, None)
    return arguments, required


def _branch_names(schema: Any, types: AcceptedTypes, depth: int) -> Iterator[str]:
    """The names of the arguments that some branch of the schema has."""
    if not isinstance(schema, dict) or depth == 0 or not types.take_step():
        return
    yield from _object(schema.get("properties"))
    branches = [schema.get(key) for key in ("if", "then", "else")]
    for key in ("allOf", "anyOf", "oneOf"):
        several = schema.get(key)
        branches += several if isinstance(several, list) else []
    branches += _object(schema.get("dependentSchemas")).values()
    if "$ref" in schema:
        branches.append(types.resolve(schema))
    for branch in branches:
        yield from _branch_names(branch, types, depth - 1)


def _argument(schema: Any, types: AcceptedTypes, lists: int = 0) -> dict[str, Any]:
    """The types of an argument; of a list also what is in it, and so on for so many lists."""
    found = types.types_of(schema)
    if not found:
        return {}
    short: dict[str, Any] = {"type": found[0] if len(found) == 1 else found}
    if found == ("string",) or "array" in found:
        inner = _object(types.resolve(schema))
        choices = inner.get("enum")
        if _few(choices):
            short["enum"] = choices
        if "array" in found:
            # Some clients refuse a list of which it is not said what is in it.
            listed = _list_in(inner, types) if lists else inner
            short["items"] = {} if "prefixItems" in listed else _items(listed.get("items"), types, lists)
    return short


def _list_in(schema: Mapping[str, Any], types: AcceptedTypes) -> Mapping[str, Any]:
    """The alternative that is a list, where there is only one."""
    found = [
        branch
        for union in ("anyOf", "oneOf")
        for branch in _list(schema.get(union))
        if "array" in (types.types_of(branch) or ["array"])
    ]
    return _object(types.resolve(found[0])) if len(found) == 1 and "type" not in schema else schema


def _items(schema: Any, types: AcceptedTypes, lists: int) -> dict[str, Any]:
    if lists:
        return _argument(schema, types, lists - 1)
    items = types.types_of(schema)
    return {"type": items[0]} if len(items) == 1 else {}


def _few(choices: Any) -> bool:
    if not isinstance(choices, list) or not 0 < len(choices) <= _MOST_CHOICES:
        return False
    return all(isinstance(one, str) for one in choices) and sum(map(len, choices)) <= _LONGEST_CHOICES


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value[:_MOST_BRANCHES] if isinstance(value, list) else []


def _names(required: Any) -> dict[str, None]:
    names = required if isinstance(required, list) else []
    return dict.fromkeys(name for name in names if isinstance(name, str))
