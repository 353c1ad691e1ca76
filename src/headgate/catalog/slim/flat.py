"""The arguments of a tool as a flat schema: names, types, and what is needed; it refuses nothing new."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.catalog.slim.kinds import Kinds

# A tool with no more arguments shows them all, whatever was said elsewhere.
_FEW: Final = 4
_FEWEST: Final = 2
# Arguments that may be left out are shown up to this many in all; some tools have hundreds.
_MOST_ARGUMENTS: Final = 10
_MOST_NEEDED: Final = 40
_LONGEST_NAME: Final = 128
_MOST_CHOICES: Final = 6
_LONGEST_CHOICES: Final = 40
_MOST_BRANCHES: Final = 16
_DEEPEST_LIST: Final = 3
_COMBINED: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf"])


class Flat(NamedTuple):
    """The schema, what it is made from, and how many arguments it does not name."""

    schema: dict[str, Any]
    arguments: Mapping[str, Any]
    left_out: int


def flat(schema: Any, said: Sequence[str] = (), *, every_argument: bool = False) -> Flat:
    """Accepts whatever `schema` does; of many arguments those that were `said` elsewhere are not named.

    With `every_argument` all are, and of lists it is said as well what is in lists inside them.
    """
    kinds = Kinds(schema)
    arguments, required = _arguments(schema, kinds)
    if every_argument:
        return _whole(arguments, required, kinds)
    needed = [name for name in required if name in arguments and len(name) <= _LONGEST_NAME][:_MOST_NEEDED]
    optional = [name for name in arguments if name not in required and len(name) <= _LONGEST_NAME]
    own = [name for name in optional if name not in said] if len(arguments) > _FEW else optional
    if not needed and not own:
        # The least common, so that models see that there is something to be given.
        own = [name for name in reversed(said) if name in optional][:_FEWEST]
    kept = {*needed, *own[: max(0, _MOST_ARGUMENTS - len(needed))]}
    short: dict[str, Any] = {"type": "object"}
    if kept:
        # In the order of the server, which mostly begins with what matters.
        short["properties"] = {
            name: _argument(inner, kinds) for name, inner in arguments.items() if name in kept
        }
    if needed:
        short["required"] = needed
    # Also those that were said elsewhere, because not every client shows its model what was.
    return Flat(short, arguments, len(arguments) - len(kept))


def _whole(arguments: Mapping[str, Any], required: Iterable[str], kinds: Kinds) -> Flat:
    short: dict[str, Any] = {"type": "object"}
    if arguments:
        short["properties"] = {
            name: _argument(inner, kinds, _DEEPEST_LIST) for name, inner in arguments.items()
        }
    needed = [name for name in required if name in arguments]
    if needed:
        short["required"] = needed
    return Flat(short, arguments, 0)


def secondary(schema: Any) -> list[str]:
    """The arguments that may be left out of a tool that has many."""
    arguments, required = _arguments(schema, Kinds(schema))
    return [name for name in arguments if name not in required] if len(arguments) > _FEW else []


def _arguments(schema: Any, kinds: Kinds) -> tuple[Mapping[str, Any], Mapping[str, None]]:
    """What the tool can be given, and which of that it must be given."""
    own = _object(schema)
    if own.keys().isdisjoint(_COMBINED):
        return _object(own.get("properties")), _names(own.get("required"))
    arguments: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in [own, *_list(own.get("allOf"))]:
        inner = _object(kinds.resolved(part))
        for name, argument in _object(inner.get("properties")).items():
            arguments.setdefault(name, argument)
        required |= _names(inner.get("required"))
    # Beside a reference and in one branch of several an argument is named, but what it may be is not known.
    for branch in [own, *_list(own.get("anyOf")), *_list(own.get("oneOf"))]:
        inner = _object(branch if branch is own else kinds.resolved(branch))
        for name in _object(inner.get("properties")):
            arguments.setdefault(name, None)
    return arguments, required


def _argument(schema: Any, kinds: Kinds, lists: int = 0) -> dict[str, Any]:
    """The types of an argument; of a list also what is in it, and so on for so many lists."""
    found = kinds.of(schema)
    if not found:
        return {}
    short: dict[str, Any] = {"type": found[0] if len(found) == 1 else found}
    if found == ("string",) or "array" in found:
        inner = _object(kinds.resolved(schema))
        choices = inner.get("enum")
        if _few(choices):
            short["enum"] = choices
        if "array" in found:
            # Some clients refuse a list of which it is not said what is in it.
            listed = _list_in(inner, kinds) if lists else inner
            short["items"] = {} if "prefixItems" in listed else _items(listed.get("items"), kinds, lists)
    return short


def _list_in(schema: Mapping[str, Any], kinds: Kinds) -> Mapping[str, Any]:
    """The alternative that is a list, where there is only one."""
    found = [
        branch
        for union in ("anyOf", "oneOf")
        for branch in _list(schema.get(union))
        if "array" in (kinds.of(branch) or ["array"])
    ]
    return _object(kinds.resolved(found[0])) if len(found) == 1 and "type" not in schema else schema


def _items(schema: Any, kinds: Kinds, lists: int) -> dict[str, Any]:
    if lists:
        return _argument(schema, kinds, lists - 1)
    items = kinds.of(schema)
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
