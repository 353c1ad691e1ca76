"""Takes the schema out of a tool's definition, and writes JSON as it is put back."""

import json
from typing import Any, Final

from headgate.catalog.definition_text import single_member
from headgate.catalog.dialects.opening import Unsayable
from headgate.catalog.dialects.shapes import Node
from headgate.protocol.json_members import JsonMember

# To look through a larger one takes so long that others would notice.
_LONGEST_SCHEMA: Final = 128 * 1024
# More digits take long to read, and nobody means them.
_MOST_DIGITS: Final = 310


def schema_in(text: str) -> tuple[JsonMember, Node]:
    """Where the schema of the arguments stands in a definition, and the schema; raises ValueError."""
    member = single_member(text, "inputSchema")
    if member is None:
        raise Unsayable("no inputSchema")
    if member.end - member.start > _LONGEST_SCHEMA:
        raise Unsayable(f"more than {_LONGEST_SCHEMA} characters")
    schema = parsed(text[member.start : member.end])
    if not isinstance(schema, dict):
        raise Unsayable("no object")
    return member, schema


def parsed(text: str) -> Any:
    """A value of JSON, in which a number that nothing can hold is infinite; raises ValueError."""
    return json.loads(text, parse_int=_integer, parse_constant=_refuse)


def _integer(text: str) -> int | float:
    return int(text) if len(text) < _MOST_DIGITS else float("inf")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def encoded(value: Any) -> str:
    """JSON; raises ValueError where a number is infinite."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a character, which only an escape can say.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text
