"""Makes one schema of two that both must hold."""

from typing import Any, Final

from headgate.catalog.dialects.shapes import Node, kind_of

# The type of what two schemas that contradict each other allow.
NOTHING: Final = "nothing"
_HIGHER: Final = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
_LOWER: Final = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
_OF_SCHEMAS: Final = {"properties", "patternProperties", "$defs", "definitions"}


def merged(over: Node, under: Node) -> Node:
    """What both ask; where only one can be kept, as of descriptions, it is that of `over`."""
    both = over | {
        key: _joined(key, over[key], value) if key in over and over[key] != value else value
        for key, value in under.items()
    }
    if both.get("enum") == [] and over.get("enum"):
        both["type"] = NOTHING
    return both


def _joined(key: str, over: Any, under: Any) -> Any:
    if type(over) is not type(under):
        return _of_two_kinds(key, over, under)
    if key in _OF_SCHEMAS and isinstance(over, dict):
        return over | {
            name: _both(over[name], schema) if name in over else schema for name, schema in under.items()
        }
    if key in ("items", "additionalProperties") and isinstance(over, dict):
        return _both(over, under)
    if key == "required" and isinstance(over, list):
        return list(dict.fromkeys(name for name in [*over, *under] if isinstance(name, str)))
    if key == "enum" and isinstance(over, list):
        known = {_key(value) for value in under}
        return [value for value in over if _key(value) in known]
    return _bound(key, over, under)


def _of_two_kinds(key: str, over: Any, under: Any) -> Any:
    if key == "type":
        return _common_types(over, under)
    if key == "additionalProperties":
        # `false` says most, and `true` least.
        return (over is not False and under is not False) and (under if over is True else over)
    return _bound(key, over, under)


def _bound(key: str, over: Any, under: Any) -> Any:
    if key == "type":
        return _common_types(over, under)
    if key == "additionalProperties":
        return over and under
    if key in _HIGHER | _LOWER and {kind_of(over), kind_of(under)} <= {"integer", "number"}:
        return max(over, under) if key in _HIGHER else min(over, under)
    return over


def _both(over: Any, under: Any) -> Any:
    return over if over == under else {"allOf": [over, under]}


def _key(value: Any) -> str:
    """The same for equal values only: 1 and true are none."""
    return f"{kind_of(value)} {value!r}"


def _common_types(over: Any, under: Any) -> Any:
    """The types that both name; an integer is a number, too."""
    first, second = (kinds if isinstance(kinds, list) else [kinds] for kinds in (over, under))
    common = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    common += [kind for kind in second if kind == "integer" and "number" in first and kind not in common]
    return common or NOTHING
