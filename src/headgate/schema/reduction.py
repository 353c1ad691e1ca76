"""Reduces a schema to types, upper levels or argument names; the result accepts whatever the whole does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headgate.schema.keywords import (
    COMBINING_KEYWORDS,
    CONDITIONAL_KEYWORDS,
    as_list,
    as_object,
    branches_of,
    declared_types,
    properties_of,
    required_names,
    resolve_reference,
)

# Of one tool: more would take too long and give a longer list than a single type.
_MOST_STEPS: Final = 2_000
_MOST_BRANCHES: Final = 16
_DEEPEST_TYPE: Final = 8
# fmt: off
_PARTITIONED_KEYWORDS: Final = (
    "type", "description", "enum", "const", "format", "pattern", "required", "default"
)
# fmt: on
# They constrain nothing, so they apply beside a reference too.
_PARTITIONED_ANNOTATIONS: Final = ("description", "default")
# A recursive schema has no end.
_DEEPEST_PART: Final = 16
_MOST_PROPERTIES: Final = 5_000
# A tool with no more arguments has the types of all, also of those in the shared text.
_FEW: Final = 4
# No real tool has half as many arguments, or a name half as long.
_MOST_ARGUMENTS: Final = 500
_LONGEST_NAME: Final = 128
# Optional arguments have types up to this number of arguments in all, and only names beyond.
_MOST_TYPED: Final = 5
_MOST_CHOICES: Final = 6
_LONGEST_CHOICES: Final = 40
_STRING_TYPES: Final = ({"type": "string"}, {"type": ("string", "null")})
_DEEPEST_LIST: Final = 3
_DEEPEST_BRANCH: Final = 8
_BRANCHING: Final = frozenset(["$ref", *COMBINING_KEYWORDS, *CONDITIONAL_KEYWORDS, "dependentSchemas"])


class AcceptedTypes:
    """Reads the schemas below one root; after its budget of steps every schema accepts any type."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps_left = _MOST_STEPS

    def take_step(self) -> bool:
        """Take one step; False if none is left."""
        self._steps_left -= 1
        return self._steps_left >= 0

    def types_of(self, schema: Any, depth: int = _DEEPEST_TYPE) -> tuple[str, ...]:
        """The types that the schema accepts at most; none where they are unknown, or where it accepts all."""
        if isinstance(schema, dict) and "$ref" in schema:
            schema = self.resolve(schema)
        if not isinstance(schema, dict) or depth == 0 or not self.take_step():
            return ()
        found = declared_types(schema) or _of_values(schema) or self._of_branches(schema, depth)
        if found and schema.get("nullable") is True:
            found = (*found, "null")
        kinds = dict.fromkeys(found)
        return tuple(kind for kind in kinds if kind != "integer" or "number" not in kinds)

    def resolve(self, schema: Any) -> Any:
        """The schema that a local reference leads to; None for a dangling or remote reference."""
        for _ in range(_DEEPEST_TYPE):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            # Older dialects ignore the keywords beside a reference, so they are not used.
            try:
                schema = resolve_reference(self._root, schema["$ref"])
            except LookupError:
                return None
        return None

    def _of_branches(self, schema: dict[str, Any], depth: int) -> tuple[str, ...]:
        for union in ("anyOf", "oneOf"):
            branches, found = as_list(schema.get(union)), list[str]()
            for branch in branches if len(branches) <= _MOST_BRANCHES else ():
                own = self.types_of(branch, depth - 1)
                if not own:
                    found.clear()
                    break
                found += own
            if found:
                return tuple(found)
        every = as_list(schema.get("allOf"))[:_MOST_BRANCHES]
        return next(filter(None, (self.types_of(one, depth - 1) for one in every)), ())


def _of_values(schema: dict[str, Any]) -> tuple[str, ...]:
    """The type of `const` or `enum`, if all values are texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not values or len(values) > _MOST_STEPS:
        return ()
    return ("string",) if all(isinstance(value, str) for value in values) else ()


class FlatSchema(NamedTuple):
    """The schema, the arguments it was made from, and the number of arguments it does not name."""

    schema: dict[str, Any]
    arguments: Mapping[str, Any]
    left_out: int


def flatten_arguments(
    schema: Any, shared_names: Sequence[str] = (), *, every_type: bool = False
) -> FlatSchema:
    """Accepts whatever `schema` does, and names every argument.

    Of a tool with many arguments, optional ones that are in `shared_names` or come late have no type. With
    `every_type` all have one, and arrays also the types of nested arrays. Without it, arguments beyond the
    limits of number and length of hand-written schemas are omitted.
    """
    types = AcceptedTypes(schema)
    every, required = _arguments(schema, types)
    arguments = every
    if not every_type:
        short_names = [name for name in (*required, *every) if name in every and len(name) <= _LONGEST_NAME]
        kept = set(list(dict.fromkeys(short_names))[:_MOST_ARGUMENTS])
        arguments = {name: inner for name, inner in every.items() if name in kept}
    needed = [name for name in required if name in arguments]
    typed = set(arguments)
    if not every_type:
        optional = [name for name in arguments if name not in set(needed)]
        if len(arguments) > _FEW:
            optional = [name for name in optional if name not in shared_names]
        typed = {*needed, *optional[: max(0, _MOST_TYPED - len(needed))]}
    lists = _DEEPEST_LIST if every_type else 0
    short: dict[str, Any] = {"type": "object"}
    if arguments:
        # In the server's order, which mostly begins with the important ones.
        short["properties"] = {
            name: _argument(inner, types, lists) if name in typed else {} for name, inner in arguments.items()
        }
        if not every_type and len(arguments) > _FEW:
            # Models take an optional argument without a type for a text, so texts need none.
            for name in short["properties"].keys() - set(needed):
                if short["properties"][name] in _STRING_TYPES:
                    short["properties"][name] = {}
    if needed:
        short["required"] = needed
    return FlatSchema(short, arguments, len(every) - len(arguments))


def stub_names(schema: Any, letters: int) -> list[str]:
    """As many argument names as fit into `letters`, the required ones first."""
    arguments, required = _arguments(schema, AcceptedTypes(schema))
    named: list[str] = []
    for name in dict.fromkeys([*(one for one in required if one in arguments), *arguments]):
        letters -= len(name)
        if letters < 0:
            break
        named.append(name)
    return named


def optional_arguments(schema: Any) -> list[str]:
    """The optional arguments of a tool that has many arguments."""
    arguments, required = _arguments(schema, AcceptedTypes(schema))
    return [name for name in arguments if name not in required] if len(arguments) > _FEW else []


def _arguments(schema: Any, types: AcceptedTypes) -> tuple[Mapping[str, Any], Mapping[str, None]]:
    """The arguments of the tool, and the required ones of them."""
    own = as_object(schema)
    if own.keys().isdisjoint(_BRANCHING):
        return properties_of(own), dict.fromkeys(required_names(own))
    arguments: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in [own, *as_list(own.get("allOf"))[:_MOST_BRANCHES]]:
        inner = types.resolve(part)
        for name, argument in properties_of(inner).items():
            arguments.setdefault(name, argument)
        required |= dict.fromkeys(required_names(inner))
    # Beside a reference and in one of several branches an argument has a name but no certain type.
    for name in _branch_names(own, types, _DEEPEST_BRANCH):
        arguments.setdefault(name, None)
    return arguments, required


def _branch_names(schema: Any, types: AcceptedTypes, depth: int) -> Iterator[str]:
    """The names of the arguments in the branches of a schema."""
    if not isinstance(schema, dict) or depth == 0 or not types.take_step():
        return
    yield from properties_of(schema)
    for branch in (*branches_of(schema), *([types.resolve(schema)] if "$ref" in schema else [])):
        yield from _branch_names(branch, types, depth - 1)


def _argument(schema: Any, types: AcceptedTypes, lists: int = 0) -> dict[str, Any]:
    """The types of an argument, and of the elements of arrays down to `lists` levels."""
    found = types.types_of(schema)
    if not found:
        return {}
    short: dict[str, Any] = {"type": found[0] if len(found) == 1 else found}
    if found == ("string",) or "array" in found:
        inner = as_object(types.resolve(schema))
        choices = as_list(inner.get("enum"))
        texts = 0 < len(choices) <= _MOST_CHOICES and all(isinstance(one, str) for one in choices)
        if texts and sum(map(len, choices)) <= _LONGEST_CHOICES:
            short["enum"] = choices
        if "array" in found:
            # Some clients refuse an array without a schema of its items.
            listed = _list_in(inner, types) if lists else inner
            items = None if "prefixItems" in listed else listed.get("items")
            if lists:
                short["items"] = _argument(items, types, lists - 1)
            else:
                kinds = types.types_of(items)
                short["items"] = {"type": kinds[0]} if len(kinds) == 1 else {}
    return short


def _list_in(schema: Mapping[str, Any], types: AcceptedTypes) -> Mapping[str, Any]:
    """The only alternative that is an array, if there is one."""
    found = [
        branch
        for union in ("anyOf", "oneOf")
        for branch in as_list(schema.get(union))[:_MOST_BRANCHES]
        if "array" in (types.types_of(branch) or ["array"])
    ]
    return as_object(types.resolve(found[0])) if len(found) == 1 and "type" not in schema else schema


def partition_schema(schema: Any, depth: int = 1) -> Any:
    """The schema with its properties down to `depth` and nothing below; itself where that is not smaller.

    The input is not changed. The result accepts whatever the input accepts.
    """
    if not isinstance(schema, dict):
        return schema
    try:
        short = _part(schema, min(depth, _DEEPEST_PART), AcceptedTypes(schema))
        return min(schema, short, key=lambda one: len(msgspec.json.encode(one)))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema


def _part(schema: Any, depth: int, types: AcceptedTypes) -> Any:
    if not isinstance(schema, dict):
        return schema
    annotations = {key: schema[key] for key in _PARTITIONED_ANNOTATIONS if key in schema}
    found = types.resolve(schema)
    if not isinstance(found, dict):
        return annotations
    short = {key: found[key] for key in _PARTITIONED_KEYWORDS if key in found} | annotations
    inner = found.get("properties")
    if isinstance(inner, dict) and len(inner) > _MOST_PROPERTIES:
        raise ValueError("too many properties")
    if depth > 0 and isinstance(inner, dict) and types.take_step():
        short["properties"] = {name: _part(one, depth - 1, types) for name, one in inner.items()}
    if "type" not in short:
        # Of a union only the types are kept.
        short |= _type_keyword(types.types_of(found))
        short |= _of_optional(found, types)
    if "items" in found and "prefixItems" not in found:
        short["items"] = _type_keyword(types.types_of(found["items"]))
    return short


def _of_optional(schema: dict[str, Any], types: AcceptedTypes) -> dict[str, Any]:
    """The choices and the format of a nullable value, in the form that many generators write."""
    union = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(union, list) or len(union) != 2 or {"type": "null"} not in union:
        return {}
    (one,) = [branch for branch in union if branch != {"type": "null"}] or [None]
    inner = types.resolve(one)
    if not isinstance(inner, dict):
        return {}
    # Both constrain texts alone.
    kept = {key: inner[key] for key in ("format", "pattern") if key in inner and key not in schema}
    if isinstance(inner.get("enum"), list) and "enum" not in schema:
        kept["enum"] = [*inner["enum"], None]
    if "items" in inner and "prefixItems" not in inner:
        kept["items"] = _type_keyword(types.types_of(inner["items"]))
    return kept


def _type_keyword(found: tuple[str, ...]) -> dict[str, Any]:
    if not found:
        return {}
    return {"type": found[0] if len(found) == 1 else list(found)}
