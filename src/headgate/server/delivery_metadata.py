"""The delivery part of `_meta`: options read from a request, status written into its reply."""

import asyncio
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import DecodeError, Raw
from msgspec.json import decode

from headgate.delivery.errors import OperationInProgress
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import Effect, HeadgateError, UpstreamTimeout
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import Priority
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, ProtocolViolation, rejection_of
from headgate.protocol.message_meta import EditMeta, with_edited_meta, with_edited_meta_on_disk
from headgate.protocol.result_conversion import is_input_required
from headgate.protocol.rmcp import (
    META,
    META_ALIAS,
    RmcpRequestMeta,
    RmcpResponseMeta,
    encode_rmcp_meta,
    pop_request_meta,
    pop_response_meta,
)

IDEMPOTENCY_KEY: Final = "io.headgate/idempotencyKey"
ON_DOUBT: Final = "io.headgate/onDoubt"
PRIORITY: Final = "io.headgate/priority"
IDEMPOTENCY_KEY_HEADER: Final = b"idempotency-key"
_GATEWAY_KEYS = frozenset({META, META_ALIAS, IDEMPOTENCY_KEY, ON_DOUBT, PRIORITY})
_MAX_CHARACTERS = 255
# Keys that the gateway makes itself begin with this.
_RESERVED_PREFIX = "headgate:"
_MAX_TIMEOUT_MS = 7_200_000
_NO_OPTIONS = RmcpRequestMeta()
_ONE_NAME = (META,)
_BOTH_NAMES = (META, META_ALIAS)


def take_delivery_request(
    meta: dict[str, Raw], header: bytes | None, features: frozenset[str], id: bytes = b"null"
) -> DeliveryRequest | None:
    """The delivery options, removed from `_meta`; None for a plain call. Raises ProtocolViolation.

    `header` is that of HTTP, if it is there, and `features` are those of rmcp that the client shares with us.
    """
    if header is None and not features and _GATEWAY_KEYS.isdisjoint(meta):
        # Nearly always.
        return None
    by_alias = bool(features) and META_ALIAS in meta and META not in meta
    try:
        given = pop_request_meta(meta)
        own, doubt = _take_text(meta, IDEMPOTENCY_KEY), _take_text(meta, ON_DOUBT)
        priority = _priority(_take_text(meta, PRIORITY))
        if given is None and own is doubt is priority is None and header is None:
            return DeliveryRequest(features=features) if features else None
        options = given or _NO_OPTIONS
        return DeliveryRequest(
            key=_one_key(options.idempotency_key, own, _key_of_header(header)),
            retries_doubt=_retries_doubt(options.on_doubt) or _retries_doubt(doubt),
            timeout_seconds=_seconds(options.timeout_ms),
            priority=priority,
            transaction=_bounded_text(options.transaction_id, "transaction_id"),
            sequence=options.sequence,
            # A client that sends options gets a status, even if it sends no request id.
            request_id=_bounded_text(options.request_id, "request_id") or (str(uuid4()) if given else ""),
            features=features,
            rmcp_names=_BOTH_NAMES if by_alias else _ONE_NAME,
        )
    except ValueError as error:
        raise ProtocolViolation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error


def _take_text(meta: dict[str, Raw], name: str) -> str | None:
    raw = meta.pop(name, None)
    if raw is None:
        return None
    try:
        return decode(raw, type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"_meta[{name!r}] must be a text") from error


def _key_of_header(header: bytes | None) -> str | None:
    if header is None:
        return None
    if not header.isascii():
        # Clients encode other characters in different ways, which would make two keys of one.
        place = f"_meta[{IDEMPOTENCY_KEY!r}]"
        raise ValueError(f"the header Idempotency-Key is ASCII; give any other key in {place}")
    return header.decode()


def _one_key(*given: str | None) -> str:
    """The idempotency key, which must be the same wherever it is given."""
    keys = [key for key in given if key is not None]
    if not keys:
        return ""
    if len(set(keys)) > 1:
        raise ValueError("the idempotency key is not the same in all places where it is given")
    key = keys[0]
    if not 1 <= len(key) <= _MAX_CHARACTERS or not key.isprintable():
        raise ValueError(f"an idempotency key has 1 to {_MAX_CHARACTERS} printable characters")
    if key.startswith(_RESERVED_PREFIX):
        raise ValueError(f"an idempotency key does not begin with {_RESERVED_PREFIX!r}")
    return key


def _retries_doubt(on_doubt: str | None) -> bool:
    if on_doubt not in (None, "retry"):
        raise ValueError('on_doubt can only be "retry"; without it a call in doubt is not made again')
    return on_doubt is not None


def _seconds(timeout_ms: int | None) -> float | None:
    if timeout_ms is None:
        return None
    if not 1 <= timeout_ms <= _MAX_TIMEOUT_MS:
        raise ValueError(f"timeout_ms is 1 to {_MAX_TIMEOUT_MS}")
    return timeout_ms / 1000


def _priority(named: str | None) -> Priority | None:
    if named is None:
        return None
    if named not in Priority.__members__.values():
        raise ValueError(f"_meta[{PRIORITY!r}] is one of {', '.join(Priority)}")
    return Priority(named)


def _bounded_text(text: str | None, what: str) -> str:
    if text is not None and (not 1 <= len(text) <= _MAX_CHARACTERS or not text.isprintable()):
        raise ValueError(f"{what} has 1 to {_MAX_CHARACTERS} printable characters")
    return text or ""


OPERATION_KEY = "io.headgate/operation"
_PLAIN_STATUS = DeliveryStatus()
_COMPLETED, _FAILED, _TIMEOUT = "completed", "failed", "timeout"
# The states of the ledger.
_DONE, _ASKED, _NOT_DONE, _IN_DOUBT = "done", "asked", "failed", "in_doubt"
_PROCESSED = {_DONE: True, _ASKED: False, _NOT_DONE: False}
_BY_EFFECT = {Effect.NONE: False, Effect.UNKNOWN: None, Effect.DONE: True}
_NO_REQUEST = DeliveryRequest()
# A larger result would block the event loop noticeably.
_LARGE_BYTES = 256 * 1024


class _OperationMetadata(msgspec.Struct, omit_defaults=True):
    op_id: str = ""
    state: str = ""
    duplicate: bool | None = None
    attempts: int | None = None
    resolved_by: str = ""
    unrecorded: bool = False


async def with_delivery_metadata(
    answer: McpResponse, delivery_request: DeliveryRequest | None
) -> McpResponse:
    delivery_status = answer.delivery_status or _PLAIN_STATUS
    delivery_request, rmcp_meta = delivery_request or _NO_REQUEST, None
    if _speaks_rmcp(delivery_request):
        rmcp_meta = _rmcp_of_answer(answer, delivery_status, delivery_request)
    if rmcp_meta is None and not _is_recorded(delivery_status):
        return answer
    if answer.error:
        members = _meta_members(delivery_status, rmcp_meta, delivery_request)
        return msgspec.structs.replace(answer, error=_error_with_meta(answer.error, members))
    edit, result = _meta_edit(delivery_status, rmcp_meta, delivery_request), answer.result
    if not isinstance(result, bytes):
        result = await asyncio.to_thread(with_edited_meta_on_disk, result, edit)
    elif len(result) <= _LARGE_BYTES:
        result = with_edited_meta(result, edit)
    else:
        result = await asyncio.to_thread(with_edited_meta, result, edit)
    return msgspec.structs.replace(answer, result=result)


def error_delivery_metadata(error: HeadgateError, delivery_request: DeliveryRequest | None) -> dict[str, Raw]:
    """The status of a failed delivery; empty for a plain call."""
    if error.delivery_status is None and delivery_request is None:
        return {}
    delivery_status = error.delivery_status or _PLAIN_STATUS
    delivery_request, rmcp_meta = delivery_request or _NO_REQUEST, None
    if _speaks_rmcp(delivery_request):
        rmcp_meta = _rmcp_of_error(error, delivery_status, delivery_request)
    return _meta_members(delivery_status, rmcp_meta, delivery_request)


def _speaks_rmcp(delivery_request: DeliveryRequest) -> bool:
    return bool(delivery_request.features) and bool(delivery_request.request_id)


def _is_recorded(delivery_status: DeliveryStatus) -> bool:
    return bool(delivery_status.op_id) or delivery_status.unrecorded


def _meta_members(
    delivery_status: DeliveryStatus, rmcp_meta: RmcpResponseMeta | None, delivery_request: DeliveryRequest
) -> dict[str, Raw]:
    members: dict[str, Raw] = {}
    if _is_recorded(delivery_status):
        operation = msgspec.convert(delivery_status, _OperationMetadata, from_attributes=True)
        members[OPERATION_KEY] = Raw(msgspec.json.encode(operation))
    if rmcp_meta is not None:
        members |= dict.fromkeys(delivery_request.rmcp_names, encode_rmcp_meta(rmcp_meta))
    return members


def _meta_edit(
    delivery_status: DeliveryStatus, rmcp_meta: RmcpResponseMeta | None, delivery_request: DeliveryRequest
) -> EditMeta:
    def edit(meta: dict[str, Raw]) -> None:
        ours = rmcp_meta
        if ours is not None:
            # The present member is ours too: it announces chunks.
            chunked = pop_response_meta(meta).chunked if "chunking" in delivery_request.features else None
            ours = msgspec.structs.replace(ours, chunked=chunked)
        meta.update(_meta_members(delivery_status, ours, delivery_request))

    return edit


def _rmcp_of_answer(
    answer: McpResponse, delivery_status: DeliveryStatus, delivery_request: DeliveryRequest
) -> RmcpResponseMeta:
    refusal = rejection_of(answer.error).code
    state = delivery_status.state or _unrecorded_state(answer, delivery_status, refusal)
    return RmcpResponseMeta(
        ack=True,
        processed=_PROCESSED.get(state),
        duplicate=delivery_status.duplicate,
        request_id=delivery_request.request_id,
        attempts=delivery_status.attempts,
        final_status=_FINAL_STATUS.get(state, _FAILED),
        error_code=refusal or None,
    )


# An operation that waits for the client's answer has not ended.
_FINAL_STATUS = {_DONE: _COMPLETED, _ASKED: None}


def _unrecorded_state(answer: McpResponse, delivery_status: DeliveryStatus, refusal: str) -> str:
    """The state of a call that the ledger does not have."""
    if refusal:
        # A server may refuse one attempt and have executed an earlier one.
        return _IN_DOUBT if delivery_status.doubted else _NOT_DONE
    result = answer.result
    if not answer.typed or not isinstance(result, bytes) or len(result) > _LARGE_BYTES:
        # Input requests are small; large results are not decoded for this.
        return _DONE
    return _ASKED if is_input_required(result) else _DONE


def _rmcp_of_error(
    error: HeadgateError, delivery_status: DeliveryStatus, delivery_request: DeliveryRequest
) -> RmcpResponseMeta:
    waiting = isinstance(error, OperationInProgress)
    taken = error.effect is not Effect.NONE or bool(delivery_status.op_id) or waiting
    # The ledger knows of earlier attempts, too.
    processed = _PROCESSED.get(delivery_status.state) if delivery_status.state else _BY_EFFECT[error.effect]
    attempts = delivery_status.attempts if error.delivery_status is not None else int(taken and not waiting)
    return RmcpResponseMeta(
        ack=taken,
        processed=None if waiting else processed,
        duplicate=delivery_status.duplicate,
        request_id=delivery_request.request_id,
        attempts=attempts,
        final_status=_TIMEOUT if error.code == UpstreamTimeout.code else _FAILED,
        error_code=error.code,
    )


def _error_with_meta(error: bytes, members: dict[str, Raw]) -> bytes:
    """The error of a server with a `_meta` in its `data`, unless that is something else than an object."""
    try:
        found = decode_object(error)
        data = decode_object(found.get("data", b"{}"))
        meta = decode_object(data.get("_meta", b"{}"))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return error
    data["_meta"] = Raw(encode_object(meta | members))
    return encode_object({**found, "data": Raw(encode_object(data))})
