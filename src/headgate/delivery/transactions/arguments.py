"""Reads the arguments of the tools for transactions and operations, and says what is wrong with them."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import DecodeError, Meta, Raw

from headgate.delivery.transactions.names import BEGIN, STEP
from headgate.delivery.transactions.plan import OnFailure
from headgate.delivery.transactions.steps import Wish
from headgate.domain.arguments import (
    CONTAINERS,
    as_object,
    decoded,
    members_of,
    nested_arguments,
    refuse_unknown,
)
from headgate.domain.call import Request
from headgate.domain.errors import InvalidArguments

# Names the compensation of a step that came as a plain call.
COMPENSATE_META: Final = "io.headgate/compensate"
DEFAULT_SECONDS: Final = 300.0
_BEGIN_EXAMPLE: Final = 'call it with {"timeout_ms": 300000}: 1000 to 86400000, which is a day'
_STEP_EXAMPLE: Final = (
    'call it with {"transaction_id": "...", "tool": "...", "args": {...}, '
    '"compensate": {"tool": "...", "args": {"id": "$result.id"}}}'
)
_META_EXAMPLE: Final = f'give "{COMPENSATE_META}" as {{"tool": "...", "arguments": {{...}}}}'
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ID_HINT: Final = "1 to 128 letters, digits, '_', '-', '.' or ':'"


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """How a transaction is to be. Null is what some models write for an argument that they leave out."""

    timeout_ms: Annotated[int, Meta(ge=1_000, le=86_400_000)] | None = None
    on_failure: OnFailure | None = None

    def seconds(self, otherwise: float) -> float:
        """Its time limit; `otherwise` where nothing is said."""
        return self.timeout_ms / 1000 if self.timeout_ms is not None else otherwise


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    transaction_id: str = ""
    tool: str = ""
    compensate: Raw = Raw(b"null")
    sequence: Annotated[int, Meta(ge=1)] | None = None


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Which transaction is meant."""

    transaction_id: str = ""


class Rollback(Named, frozen=True, kw_only=True):
    """Which transaction is meant, and the step that stays as it is."""

    leave: Annotated[int, Meta(ge=1)] | None = None


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """Which operation is meant."""

    op_id: str = ""


class Resolution(Identified, frozen=True, kw_only=True):
    """Which operation is meant, and whether it happened."""

    happened: bool | None = None


_Named = TypeVar("_Named", bound=Named)
_Identified = TypeVar("_Identified", bound=Identified)


def beginning(params: Mapping[str, Raw]) -> Beginning:
    """How a transaction is to be; raises InvalidArguments."""
    allowed = {"on_failure": "rollback or keep"}
    return decoded(params, Beginning, BEGIN, _BEGIN_EXAMPLE, allowed, strict=False)


def named(tool: str, params: Mapping[str, Raw], shape: type[_Named]) -> _Named:
    """Which transaction is meant; raises InvalidArguments."""
    example = 'call it with {"transaction_id": "..."}, which transaction_begin gives'
    given = decoded(params, shape, tool, example, strict=False)
    if not given.transaction_id:
        raise InvalidArguments(tool, "transaction_id is not given", hint=example)
    return given


def identified(tool: str, params: Mapping[str, Raw], shape: type[_Identified]) -> _Identified:
    """Which operation is meant; raises InvalidArguments."""
    fields = {"op_id": "..."} | ({"happened": True} if shape is Resolution else {})
    example = f"call it with {msgspec.json.encode(fields).decode()}"
    given = decoded(params, shape, tool, example, strict=False)
    if not given.op_id:
        raise InvalidArguments(tool, "op_id is not given", hint=example)
    if isinstance(given, Resolution) and given.happened is None:
        raise InvalidArguments(tool, "happened is not given", hint=example)
    return given


def step_of(request: Request) -> tuple[str, Wish]:
    """The transaction and the step that a call of the tool asks for; raises InvalidArguments."""
    given = decoded(request.params, _Step, STEP, _STEP_EXAMPLE, strict=False, container="args")
    for argument, value in (("transaction_id", given.transaction_id), ("tool", given.tool)):
        if not value:
            raise InvalidArguments(STEP, f"{argument} is not given", hint=_STEP_EXAMPLE)
    members = members_of(request.params, STEP, _STEP_EXAMPLE)
    arguments = nested_arguments(members, STEP, _STEP_EXAMPLE)
    remedy = _members(given.compensate, STEP, "compensate", _STEP_EXAMPLE)
    undo_tool, undo_template = _compensation(remedy, STEP, _STEP_EXAMPLE)
    wish = Wish(
        tool=given.tool,
        arguments=bytes(arguments),
        undo_tool=undo_tool,
        undo_template=undo_template,
        sequence=given.sequence,
        key=request.ticket.key if request.ticket is not None else "",
        spoken=True,
    )
    return given.transaction_id, wish


def plain_step(request: Request, begins_seconds: float) -> tuple[str, Wish]:
    """The same of a plain call whose ticket names a transaction; raises InvalidArguments."""
    ticket = request.ticket
    assert ticket is not None
    if not _ID.fullmatch(ticket.transaction):
        problem = f"transaction_id is {ticket.transaction[:100]!r}"
        raise InvalidArguments("tools/call", problem, hint=f"an id has {_ID_HINT}")
    raw = request.meta.get(COMPENSATE_META, Raw(b"null"))
    remedy = _members(raw, "tools/call", COMPENSATE_META, _META_EXAMPLE)
    undo_tool, undo_template = _compensation(remedy, "tools/call", _META_EXAMPLE)
    wish = Wish(
        tool=request.name,
        arguments=bytes(request.params.get("arguments", b"{}")),
        undo_tool=undo_tool,
        undo_template=undo_template,
        sequence=ticket.sequence,
        key=ticket.key,
        begins_seconds=begins_seconds,
    )
    return ticket.transaction, wish


def _members(raw: Raw, owner: str, argument: str, example: str) -> dict[str, Raw] | None:
    """What an object says that may have been sent as a text; None for null."""
    if bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(as_object(bytes(raw), owner, argument, example), type=dict[str, Raw])
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(owner, f"{argument} cannot be read ({error})", hint=example) from error


def _compensation(given: Mapping[str, Raw] | None, owner: str, example: str) -> tuple[str, bytes]:
    """The tool that takes a step back and the template of its arguments; empty for none.

    A compensation that lost an argument would undo something else, so nothing in it is dropped.
    """
    if given is None:
        return "", b"{}"
    undo = _undo_tool(given, owner, example)
    said = f"{owner}: compensate"
    refuse_unknown(said, given, ("tool", "args"), hint=example, accepted=CONTAINERS, target=undo)
    if not undo:
        raise InvalidArguments(owner, "compensate names no tool", hint=example)
    return undo, bytes(nested_arguments(given, owner, example, within="compensate."))


def _undo_tool(given: Mapping[str, Raw], owner: str, example: str) -> str:
    try:
        return msgspec.json.decode(given.get("tool", b'""'), type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(owner, "compensate.tool: expected a text", hint=example) from error
