"""Decides whether an output schema lets a truncated result carry its notice in `structuredContent`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import DecodeError

from headgate.schema.keywords import (
    ANNOTATION_KEYWORDS,
    COMBINING_KEYWORDS,
    CONDITIONAL_KEYWORDS,
    as_list,
    declared_types,
    resolve_reference,
    says_nothing,
)

# The member with the notice, the cache_id, and the size of the excerpt and of the whole.
NOTICE_MEMBER: Final = "_headgate"

# Characters; parsing a larger schema would delay other clients.
_LONGEST: Final = 128 * 1024
_MOST_SCHEMAS: Final = 500
_MOST_HOPS: Final = 10

# Keywords of other types do not constrain the members of an object.
# fmt: off
_OF_OTHER_TYPES: Final = frozenset([
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains",
    "maxContains", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern",
    "format", "contentEncoding", "contentMediaType", "contentSchema", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf"
])
# fmt: on


def admits_notice(schema: str | bytes) -> bool:
    """Whether every object that satisfies the schema also does so with the notice added.

    False also where that is not certain: an unknown keyword, a remote reference, a root that is not
    `"type": "object"`, or a schema of more than 128 KiB.
    """
    if len(schema) > _LONGEST:
        return False
    try:
        root = msgspec.json.decode(schema)
        if not isinstance(root, Mapping) or root.get("type") != "object":
            return False
        return _NoticeCompatibilityCheck(root).ignores_notice(root)
    except (DecodeError, UnicodeDecodeError, RecursionError, LookupError):
        return False


class _NoticeCompatibilityCheck:
    """Checks whether any part of a schema depends on the member with the notice."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._seen: set[int] = set()
        self._rules: dict[str, Callable[[Any], bool]] = {
            "type": lambda named: declared_types({"type": named}) is not None,
            "required": lambda names: isinstance(names, list) and NOTICE_MEMBER not in names,
            "properties": lambda named: isinstance(named, Mapping) and NOTICE_MEMBER not in named,
            "additionalProperties": self._accepts_notice,
            "unevaluatedProperties": self._accepts_notice,
            # No pattern is evaluated, because it may never end.
            "patternProperties": lambda schemas: (
                isinstance(schemas, Mapping) and all(map(self._accepts_notice, schemas.values()))
            ),
            "propertyNames": _is_any_text,
            **dict.fromkeys(
                COMBINING_KEYWORDS,
                lambda schemas: isinstance(schemas, list) and all(map(self.ignores_notice, schemas)),
            ),
            **dict.fromkeys(("not", *CONDITIONAL_KEYWORDS), self.ignores_notice),
            **dict.fromkeys(
                ("dependentRequired", "dependentSchemas", "dependencies"), self._dependencies_ignore
            ),
            "$ref": lambda reference: self.ignores_notice(resolve_reference(self._root, reference)),
            "const": lambda value: not isinstance(value, Mapping),
            "enum": lambda values: (
                isinstance(values, list) and not any(isinstance(one, Mapping) for one in values)
            ),
        }

    def ignores_notice(self, schema: Any) -> bool:
        """Whether an object satisfies the schema with the notice exactly when it does without it.

        Stronger than needed at the root, so that it also holds below `oneOf`, `not` and `if`.
        """
        if isinstance(schema, bool):
            return True
        if not isinstance(schema, Mapping) or len(self._seen) > _MOST_SCHEMAS:
            return False
        # Up to draft 7 the keywords beside a reference do not count.
        named = declared_types(schema) if "$ref" not in schema else None
        never_an_object = named is not None and "type" in schema and "object" not in named
        # A recursive schema was checked when it was first met.
        if id(schema) in self._seen or never_an_object:
            return True
        self._seen.add(id(schema))
        for keyword, value in schema.items():
            if keyword in ("minProperties", "$id"):
                ignores = schema is self._root
            elif keyword in self._rules:
                ignores = self._rules[keyword](value)
            else:
                ignores = _says_nothing_of_members(keyword)
            if not ignores:
                return False
        return True

    def _dependencies_ignore(self, dependencies: Any) -> bool:
        if not isinstance(dependencies, Mapping) or NOTICE_MEMBER in dependencies:
            return False
        return all(
            NOTICE_MEMBER not in needed if isinstance(needed, list) else self.ignores_notice(needed)
            for needed in dependencies.values()
        )

    def _accepts_notice(self, schema: Any, depth: int = 0) -> bool:
        """Whether the notice itself, an object with texts and numbers, satisfies the schema."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping) or depth > _MOST_HOPS:
            return False
        return all(self._keyword_accepts(keyword, value, depth + 1) for keyword, value in schema.items())

    def _keyword_accepts(self, keyword: str, value: Any, depth: int) -> bool:
        match keyword:
            case "type":
                return "object" in (declared_types({"type": value}) or ())
            case "additionalProperties":
                return value is True or value == {}
            case "allOf" | "anyOf":
                accepted = (self._accepts_notice(one, depth) for one in as_list(value))
                return isinstance(value, list) and (all if keyword == "allOf" else any)(accepted)
            case "$ref":
                return self._accepts_notice(resolve_reference(self._root, value), depth)
        return _says_nothing_of_members(keyword)


def _says_nothing_of_members(keyword: str) -> bool:
    return keyword in _OF_OTHER_TYPES or says_nothing(keyword)


def _is_any_text(schema: Any) -> bool:
    known = isinstance(schema, Mapping) and schema.keys() <= {*ANNOTATION_KEYWORDS, "type"}
    return schema is True or (known and schema.get("type", "string") == "string")
