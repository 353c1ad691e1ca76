"""Which parts of a value can be removed so that it still satisfies its JSON Schema."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from headgate.schema.keywords import as_list, declared_types, resolve_reference, says_nothing

# Several schemas that apply to one value.
Schemas: TypeAlias = tuple[Mapping[str, Any], ...]

# fmt: off
# Each is obeyed below, or stays satisfied after a removal.
_SUPPORTED = frozenset([
    "type", "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
    "maxProperties", "items", "prefixItems", "additionalItems", "maxItems", "maxLength", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "anyOf", "oneOf",
    "$ref", "minLength", "minItems", "uniqueItems", "minProperties", "dependentRequired",
    "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema"
])
# fmt: on
_SUPPORTED_IF_FALSE = frozenset(["unevaluatedProperties", "unevaluatedItems"])
_FIX_A_STRING = ("pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
# Of one value. A schema that needs more counts as unsupported.
_MOST_SCHEMAS = 200
_MOST_HOPS = 10


class RemovalRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a value must stay."""

    # The whole value.
    fixed: bool = False
    # Each element unchanged.
    elements_fixed: bool = False
    # All members, even if parts of them can be removed.
    members_fixed: bool = False
    shortest: int = 0
    fewest: int = 0
    required: frozenset[str] = frozenset()
    schemas: Schemas = ()

    def of_element(self, index: int) -> Schemas:
        found = []
        for schema in self.schemas:
            places = _prefix_items(schema)
            behind = "additionalItems" if isinstance(schema.get("items"), list) else "items"
            found.append(places[index] if index < len(places) else schema.get(behind, True))
        return _distinct(found)

    def of_member(self, key: str) -> Schemas:
        found: list[Any] = []
        for schema in self.schemas:
            # The pattern is not matched against the key: obeying a schema that does not apply does no harm.
            found += _map(schema, "patternProperties").values()
            named = _map(schema, "properties")
            found.append(named[key] if key in named else schema.get("additionalProperties", True))
        return _distinct(found)


def _distinct(schemas: Iterable[Any]) -> Schemas:
    # `true` allows everything, and a value that `false` describes does not exist.
    return tuple({id(schema): schema for schema in schemas if not isinstance(schema, bool)}.values())


NOTHING_REMOVABLE = RemovalRules(fixed=True)


class RemovalRuleIndex:
    """The removal rules for each place of a schema; an unsupported part fixes the value it describes."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[str, tuple[int, ...]], RemovalRules] = {}

    def rules(self, schemas: Schemas, kind: str) -> RemovalRules:
        """The rules for an `object`, `array` or `string` to which all these schemas apply."""
        key = kind, tuple(map(id, schemas))
        if key not in self._known:
            found: dict[int, Mapping[str, Any]] = {}
            try:
                for schema in schemas:
                    self._collect(schema, kind, found)
                self._known[key] = _combined(tuple(found.values()), kind)
            except _UnsupportedSchema:
                self._known[key] = NOTHING_REMOVABLE
        return self._known[key]

    def _collect(self, schema: Any, kind: str, found: dict[int, Mapping[str, Any]]) -> None:
        """Add the schema and all schemas it refers to.

        A value goes on to satisfy whichever of them it satisfied, so `anyOf` is treated like `allOf`.
        """
        if isinstance(schema, bool) or id(schema) in found:
            return
        if not isinstance(schema, Mapping) or len(found) >= _MOST_SCHEMAS:
            raise _UnsupportedSchema
        if not _may_be(schema, kind):
            return
        _check_keywords(schema, self._root)
        found[id(schema)] = schema
        if "$ref" in schema:
            self._collect(self._referred(schema["$ref"]), kind, found)
        possible = [branch for branch in _list(schema, "oneOf") if self._possible(branch, kind)]
        if len(possible) > 1:
            # A smaller value might satisfy two of them.
            raise _UnsupportedSchema
        for branch in (*_list(schema, "allOf"), *_list(schema, "anyOf"), *possible):
            self._collect(branch, kind, found)

    def _possible(self, schema: Any, kind: str) -> bool:
        for _ in range(_MOST_HOPS):
            if isinstance(schema, Mapping) and "$ref" in schema:
                schema = self._referred(schema["$ref"])
        return schema is not False and (not isinstance(schema, Mapping) or _may_be(schema, kind))

    def _referred(self, reference: Any) -> Any:
        try:
            return resolve_reference(self._root, reference)
        except LookupError:
            raise _UnsupportedSchema from None


class _UnsupportedSchema(Exception):
    """A part of a schema that may forbid any change."""


def _may_be(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a value of this type can satisfy the schema, as far as `type` decides."""
    # Up to draft 7 the keywords beside a reference do not count.
    if "type" not in schema or "$ref" in schema:
        return True
    named = declared_types(schema)
    if named is None:
        raise _UnsupportedSchema
    return kind in named


def _check_keywords(schema: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    for keyword, meaning in schema.items():
        known = (
            keyword in _SUPPORTED
            or says_nothing(keyword)
            or (keyword in _SUPPORTED_IF_FALSE and meaning is False)
            # Elsewhere `$id` changes the document that references resolve in.
            or (keyword == "$id" and schema is root)
        )
        if not known:
            raise _UnsupportedSchema


def _combined(schemas: Schemas, kind: str) -> RemovalRules:
    if kind == "string":
        if any(keyword in schema for schema in schemas for keyword in _FIX_A_STRING):
            return NOTHING_REMOVABLE
        return RemovalRules(shortest=max((_number(schema, "minLength") for schema in schemas), default=0))
    if kind == "array":
        # Fewer than its positions would satisfy the schema, but a client expects all of a tuple.
        fewest = [max(_number(schema, "minItems"), len(_prefix_items(schema))) for schema in schemas]
        return RemovalRules(
            schemas=schemas,
            fewest=max(fewest, default=0),
            elements_fixed=any(schema.get("uniqueItems") for schema in schemas),
        )
    return RemovalRules(
        schemas=schemas,
        required=frozenset(str(key) for schema in schemas for key in _list(schema, "required")),
        members_fixed=any("minProperties" in schema or "dependentRequired" in schema for schema in schemas),
    )


def _prefix_items(schema: Mapping[str, Any]) -> list[Any]:
    # Up to draft 2019-09 a list under `items` had the meaning of `prefixItems`.
    return _list(schema, "prefixItems") or as_list(schema.get("items"))


def _list(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword, [])
    if not isinstance(found, list):
        raise _UnsupportedSchema
    return found


def _map(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, Mapping) else {}


def _number(schema: Mapping[str, Any], keyword: str) -> int:
    found = schema.get(keyword, 0)
    if not isinstance(found, int):
        raise _UnsupportedSchema
    return found
