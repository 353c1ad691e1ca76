"""The built-in example server: a few useful tools that need no network and no account."""

import ast
import asyncio
import hashlib
import math
import operator
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from headgate.upstream.transports.builtin import BuiltinCall, BuiltinTool, InvalidToolArgument, ReportHealth

_TOOLS: list[BuiltinTool] = []
_TEXT = {"type": "string", "description": "The text"}
_Run = Callable[[dict[str, Any], BuiltinCall], Awaitable[str]]


def _tool(
    name: str, description: str, *, hints: dict[str, bool] | None = None, **properties: dict[str, Any]
) -> Callable[[_Run], _Run]:
    """Adds a tool; a property without a default is required."""
    required = [key for key, schema in properties.items() if "default" not in schema]
    definition = {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": True, "openWorldHint": False, **(hints or {})},
    }

    def add(run: _Run) -> _Run:
        _TOOLS.append(BuiltinTool(definition, run))
        return run

    return add


_IDEMPOTENT = {"idempotentHint": True}
_TIMEZONE = {"type": "string", "description": "IANA name, e.g. Europe/Berlin", "default": "UTC"}
_EXPRESSION = {"type": "string", "description": "e.g. (3 + 4) * 2 ** 5"}
_ALGORITHMS = ["sha256", "sha512", "sha1", "md5"]
_ALGORITHM = {"type": "string", "enum": _ALGORITHMS, "default": "sha256"}
_SIZE = {"type": "integer", "minimum": 1, "maximum": 64, "default": 16}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 60, "default": 1}


@_tool("time", "Current date and time in a timezone.", timezone=_TIMEZONE)
async def _time(arguments: dict[str, Any], call: BuiltinCall) -> str:
    name = arguments.get("timezone", "UTC")
    try:
        zone = UTC if name == "UTC" else ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        advice = "use a name like 'Europe/Berlin' or 'UTC'"
        raise InvalidToolArgument(f"Unknown timezone {str(name)[:50]!r}; {advice}.") from error
    return datetime.now(zone).isoformat(timespec="seconds")


_OPERATIONS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_LONGEST_EXPRESSION = 200


@_tool("calculate", "Evaluate an arithmetic expression.", hints=_IDEMPOTENT, expression=_EXPRESSION)
async def _calculate(arguments: dict[str, Any], call: BuiltinCall) -> str:
    expression = _text(arguments, "expression")
    if len(expression) > _LONGEST_EXPRESSION:
        raise InvalidToolArgument(f"The expression has more than {_LONGEST_EXPRESSION} characters; split it.")
    try:
        value = _evaluate(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidToolArgument(f"Cannot calculate {expression!r}: {error}.") from error
    return str(int(value) if float(value).is_integer() and abs(value) < 2**53 else value)


def _evaluate(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and (operation := _OPERATIONS.get(type(node.op))):
        return operation(_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and (operation := _OPERATIONS.get(type(node.op))):
        return operation(_evaluate(node.operand))
    raise ValueError("only numbers and + - * / // % ** ( ) are understood")


@_tool("count_text", "Count characters, words, lines and bytes of a text.", hints=_IDEMPOTENT, text=_TEXT)
async def _count(arguments: dict[str, Any], call: BuiltinCall) -> str:
    text = _text(arguments, "text")
    counts = {
        "characters": len(text),
        "words": len(re.findall(r"\w+", text)),
        "lines": len(text.splitlines()),
        "bytes": len(text.encode()),
    }
    return msgspec.json.encode(counts).decode()


@_tool("hash_text", "Hash a text.", hints=_IDEMPOTENT, text=_TEXT, algorithm=_ALGORITHM)
async def _hash(arguments: dict[str, Any], call: BuiltinCall) -> str:
    algorithm = str(arguments.get("algorithm", "sha256"))
    if algorithm not in _ALGORITHMS:
        raise InvalidToolArgument(f"Unknown algorithm {algorithm!r}; use sha256, sha512, sha1 or md5.")
    return hashlib.new(algorithm, _text(arguments, "text").encode(), usedforsecurity=False).hexdigest()


@_tool("random_token", "A random token in hexadecimal, from the system's secure source.", bytes=_SIZE)
async def _token(arguments: dict[str, Any], call: BuiltinCall) -> str:
    size = arguments.get("bytes", 16)
    if not isinstance(size, int) or not 1 <= size <= 64:
        raise InvalidToolArgument("'bytes' must be a whole number from 1 to 64.")
    return secrets.token_hex(size)


_WAIT = "Wait some seconds and report progress meanwhile, to try out progress and cancellation."


@_tool("wait", _WAIT, seconds=_SECONDS)
async def _wait(arguments: dict[str, Any], call: BuiltinCall) -> str:
    seconds = arguments.get("seconds", 1)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= 60:
        raise InvalidToolArgument("'seconds' must be a number from 0 to 60.")
    steps = max(1, math.ceil(seconds * 2))
    for step in range(steps):
        await asyncio.sleep(seconds / steps)
        call.progress(step + 1, steps)
    return f"waited {seconds:g} s"


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise InvalidToolArgument(f"'{name}' is missing or not a text.")
    return value


TOOLS = tuple(_TOOLS)


@asynccontextmanager
async def open_example_server(_health: ReportHealth) -> AsyncIterator[tuple[BuiltinTool, ...]]:
    """The tools; there is nothing to open, and nothing that could be wrong."""
    yield TOOLS
