"""Makes up schemas and arguments for them, the same ones for the same number."""

from random import Random
from typing import Any, Final

KINDS: Final = ("string", "number", "integer", "boolean", "array", "object", "null")
NAMES: Final = ("a", "b", "c", "d", "e", "f", "type", "$ref", "properties", "required")


class SchemaGenerator:
    """One made-up tool."""

    def __init__(self, number: int) -> None:
        self._random = Random(number)

    def root(self) -> dict[str, Any]:
        """The schema of its arguments; references lead to definitions that refer to nothing."""
        random = self._random
        definitions = {
            "A": self._schema(1),
            "B": {"$ref": "#/$defs/C"},
            "C": self._schema(2),
            "D": self._object(1),
        }
        root = {**self._object(3), "type": "object", "$defs": definitions}
        for name in random.sample(NAMES, 3):
            root.setdefault("properties", {})[name] = {"$ref": f"#/$defs/{random.choice('ABC')}"}
        for union in ("allOf", "anyOf", "oneOf"):
            if random.random() < 0.15:
                root[union] = [self._object(1) for _ in range(random.randint(1, 3))]
        if random.random() < 0.1:
            root["$ref"] = "#/$defs/D"
        return root

    def arguments(self) -> dict[str, Any]:
        """Something to call it with."""
        return {name: self._value(2) for name in self._random.sample(NAMES, self._random.randint(0, 3))}

    def _object(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "properties": {name: self._schema(depth) for name in self._random.sample(NAMES, 3)}
        }
        if self._random.random() < 0.3:
            made["required"] = self._random.sample(NAMES, 1)
        return made

    def _schema(self, depth: int) -> Any:
        random = self._random
        made: dict[str, Any] = {}
        for keyword, likely in LIKELY.items():
            if random.random() < likely:
                made[keyword] = self._keyword(keyword, depth)
        return made if random.random() < 0.95 else random.choice([True, False])

    def _keyword(self, keyword: str, depth: int) -> Any:
        random = self._random
        match keyword:
            case "type":
                return random.choice(KINDS) if random.random() < 0.7 else random.sample(KINDS, 2)
            case "enum":
                return [self._value(1) for _ in range(3)] if random.random() < 0.5 else ["x", "y"]
            case "const":
                return self._value(1)
            case "nullable":
                return random.random() < 0.5
            case "properties":
                return {name: self._schema(depth - 1) for name in random.sample(NAMES, 2)} if depth else {}
            case "items":
                return self._schema(depth - 1) if depth else {}
            case "required":
                return random.sample(NAMES, 1)
            case _:
                return [self._schema(depth - 1) if depth else {} for _ in range(random.randint(1, 3))]

    def _value(self, depth: int) -> Any:
        random = self._random
        kind = random.choice(KINDS if depth else KINDS[:4])
        match kind:
            case "array":
                return [self._value(depth - 1) for _ in range(random.randint(0, 2))]
            case "object":
                return {name: self._value(depth - 1) for name in random.sample(NAMES, random.randint(0, 2))}
            case _:
                return random.choice(PLAIN[kind])


# How likely each keyword is to stand in a schema.
LIKELY: Final = {
    "type": 0.6,
    "enum": 0.15,
    "const": 0.05,
    "nullable": 0.1,
    "properties": 0.15,
    "required": 0.1,
    "items": 0.25,
    "prefixItems": 0.1,
    "anyOf": 0.2,
    "oneOf": 0.15,
    "allOf": 0.1,
}
PLAIN: Final[dict[str, list[Any]]] = {
    "string": ["x", "y", ""],
    "number": [1.5, 2.0, 0],
    "integer": [0, 1],
    "boolean": [True, False],
    "null": [None],
}
