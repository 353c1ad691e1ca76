"""What a client is told about the delivery of its call, in the `_meta` of the answer.

`io.headgate/operation` is there for calls that the ledger has, or should have. `rmcp` is there for a client
that speaks it and spoke of it in its call:

- `ack` is false when the call was refused before anything was done for it: neither sent nor recorded.
- `processed` is what the ledger says: true for `done`, false for `failed` and `asked`, absent for `in_doubt`
  and `intent`. A call without a record is judged by the same rules.
- `final_status` is `completed` for `done`, whatever the server answered, else `timeout` or `failed`. It is
  absent for `asked`: the call goes on with the client's answer.
- `error_code` says why there is no `completed`: also for an error with which the server refused to begin.
"""

import asyncio

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer
from headgate.domain.errors import Effect, HeadgateError, StillRunning, UpstreamTimeout
from headgate.domain.ticket import Receipt, Ticket
from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.metas import Edit, edited, edited_on_disk
from headgate.wire.results import asks
from headgate.wire.rmcp import Said, encoded, take_said
from headgate.wire.violations import refusal_of

OPERATION = "io.headgate/operation"
_PLAIN = Receipt()
_COMPLETED, _FAILED, _TIMEOUT = "completed", "failed", "timeout"
# In the words of the ledger, which is below this package.
_DONE, _ASKED, _NOT_DONE, _IN_DOUBT = "done", "asked", "failed", "in_doubt"
_PROCESSED = {_DONE: True, _ASKED: False, _NOT_DONE: False}
_BY_EFFECT = {Effect.NONE: False, Effect.UNKNOWN: None, Effect.DONE: True}
_NOBODY = Ticket()
# To look through a larger result takes so long that others would notice.
_LARGE_BYTES = 256 * 1024


class _Operation(msgspec.Struct, omit_defaults=True):
    op_id: str = ""
    state: str = ""
    duplicate: bool | None = None
    attempts: int | None = None
    resolved_by: str = ""
    unrecorded: bool = False


async def with_receipt(answer: Answer, ticket: Ticket | None) -> Answer:
    """The answer of a server, and what became of the call."""
    receipt = answer.receipt or _PLAIN
    ticket = ticket or _NOBODY
    said = _answered(answer, receipt, ticket) if _hears(ticket) else None
    if said is None and not _recorded(receipt):
        return answer
    if answer.error:
        members = _members(receipt, said, ticket)
        return msgspec.structs.replace(answer, error=_in_error(answer.error, members))
    edit, result = _edit(receipt, said, ticket), answer.result
    if isinstance(result, bytes) and len(result) <= _LARGE_BYTES:
        return msgspec.structs.replace(answer, result=edited(result, edit))
    if isinstance(result, bytes):
        whole = await asyncio.to_thread(edited, result, edit)
        return msgspec.structs.replace(answer, result=whole)
    return msgspec.structs.replace(answer, result=await asyncio.to_thread(edited_on_disk, result, edit))


def failure_meta(error: HeadgateError, ticket: Ticket | None) -> dict[str, Raw]:
    """What became of a call that failed; empty for a plain one."""
    if error.receipt is None and ticket is None:
        return {}
    receipt = error.receipt or _PLAIN
    ticket = ticket or _NOBODY
    return _members(receipt, _refused(error, receipt, ticket) if _hears(ticket) else None, ticket)


def _hears(ticket: Ticket) -> bool:
    """Whether the client spoke of delivery in words that both know."""
    return bool(ticket.features) and bool(ticket.request_id)


def _recorded(receipt: Receipt) -> bool:
    return bool(receipt.op_id) or receipt.unrecorded


def _members(receipt: Receipt, said: Said | None, ticket: Ticket) -> dict[str, Raw]:
    members: dict[str, Raw] = {}
    if _recorded(receipt):
        operation = _Operation(
            op_id=receipt.op_id,
            state=receipt.state,
            duplicate=receipt.duplicate,
            attempts=receipt.attempts,
            resolved_by=receipt.resolved_by,
            unrecorded=receipt.unrecorded,
        )
        members[OPERATION] = Raw(msgspec.json.encode(operation))
    if said is not None:
        members |= dict.fromkeys(ticket.rmcp_names, encoded(said))
    return members


def _edit(receipt: Receipt, said: Said | None, ticket: Ticket) -> Edit:
    def edit(meta: dict[str, Raw]) -> None:
        ours = said
        if ours is not None:
            # What is there is ours too, and says that the result is to be fetched in parts.
            chunked = take_said(meta).chunked if "chunking" in ticket.features else None
            ours = msgspec.structs.replace(ours, chunked=chunked)
        meta.update(_members(receipt, ours, ticket))

    return edit


def _answered(answer: Answer, receipt: Receipt, ticket: Ticket) -> Said:
    refusal = refusal_of(answer.error).code
    state = receipt.state or _unrecorded_state(answer, receipt, refusal)
    return Said(
        ack=True,
        processed=_PROCESSED.get(state),
        duplicate=receipt.duplicate,
        request_id=ticket.request_id,
        attempts=receipt.attempts,
        final_status=_FINAL.get(state, _FAILED),
        error_code=refusal or None,
    )


# An operation that waits for the client's answer has not ended.
_FINAL = {_DONE: _COMPLETED, _ASKED: None}


def _unrecorded_state(answer: Answer, receipt: Receipt, refusal: str) -> str:
    """What the ledger would say of a call that it does not have."""
    if refusal:
        # A server may refuse an attempt, and have carried out the one before.
        return _IN_DOUBT if receipt.doubted else _NOT_DONE
    result = answer.result
    if not answer.typed or not isinstance(result, bytes) or len(result) > _LARGE_BYTES:
        # Questions are small, and nothing that is large is opened for this.
        return _DONE
    return _ASKED if asks(result) else _DONE


def _refused(error: HeadgateError, receipt: Receipt, ticket: Ticket) -> Said:
    waiting = isinstance(error, StillRunning)
    taken = error.effect is not Effect.NONE or bool(receipt.op_id) or waiting
    # The ledger knows of earlier attempts, too.
    processed = _PROCESSED.get(receipt.state) if receipt.state else _BY_EFFECT[error.effect]
    return Said(
        ack=taken,
        processed=None if waiting else processed,
        duplicate=receipt.duplicate,
        request_id=ticket.request_id,
        attempts=receipt.attempts if error.receipt is not None else int(taken and not waiting),
        final_status=_TIMEOUT if error.code == UpstreamTimeout.code else _FAILED,
        error_code=error.code,
    )


def _in_error(error: bytes, members: dict[str, Raw]) -> bytes:
    """The error of a server with a `_meta` in its `data`, unless that is something else than an object."""
    try:
        found = decode_object(error)
        data = decode_object(found.get("data", b"{}"))
        meta = decode_object(data.get("_meta", b"{}"))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return error
    data["_meta"] = Raw(encode_object(meta | members))
    return encode_object({**found, "data": Raw(encode_object(data))})
