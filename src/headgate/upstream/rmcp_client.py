"""rmcp with one server: delivery metadata of calls and answers, and results transferred in chunks."""

import asyncio
import base64
import binascii
import hashlib
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import Effect, HeadgateError, InvalidUpstreamResponse, UpstreamLost
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.payload import Payload
from headgate.domain.server_spec import ServerSpec
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.message_meta import with_edited_meta, with_edited_meta_on_disk
from headgate.protocol.rmcp import (
    CHUNK_METHOD,
    DONE_METHOD,
    META,
    META_ALIAS,
    NO_RESPONSE_META,
    RETRYABLE,
    VERSION,
    RmcpChunk,
    RmcpRequestMeta,
    RmcpResponseMeta,
    RmcpTransfer,
    encode_rmcp_meta,
    pop_response_meta,
)
from headgate.upstream.errors import TransferIntegrityError, UpstreamNack, UpstreamOutcomeUnknown
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageAssembler,
    MessageLimits,
    MessageTooLarge,
    discard_payload,
    unusable_answer,
)
from headgate.upstream.transport import UpstreamSessionExpired

_MARKS = (META.encode(), META_ALIAS.encode())
# Searching a larger result takes so long that other clients would notice.
_LARGE_BYTES = 256 * 1024
# The limits of a transfer: the largest message of a server, and more chunks than any needs.
_LIMITS = MessageLimits(2048 * 1024 * 1024, 1024 * 1024, Path(tempfile.gettempdir()))
_MOST_PARTS = 1_000_000
_AT_ONCE = 4
_FETCH_ATTEMPTS = 3
_LONGEST_CODE = 200
# The final states of a call without an answer, at a server that is a gateway itself.
_WITHOUT_ANSWER = ("failed", "timeout")
# A transferred result is read like a message.
_OPENING, _CLOSING = b'{"jsonrpc":"2.0","id":1,"result":', b"}"

# Sends a request of the gateway's own; raises UpstreamError or UpstreamSessionExpired.
SendGatewayRequest = Callable[[str, dict[str, Raw]], Awaitable[McpResponse]]


@dataclass(eq=False)
class RmcpClient:
    """Writes and reads `_meta.rmcp` for one server, and fetches results in chunks."""

    _spec: ServerSpec
    _features: frozenset[str]
    _send_request: SendGatewayRequest
    _limits: MessageLimits | None = None

    def request_meta(self, call: UpstreamCall) -> Raw:
        """The delivery metadata of a call; a transaction is not passed on."""
        options, seconds = call.delivery_options, self._spec.timeout_seconds
        if options is not None and options.deadline is not None:
            seconds = min(seconds, options.deadline - asyncio.get_running_loop().time())
        key = options.key if options is not None and "idempotency" in self._features else ""
        return encode_rmcp_meta(
            RmcpRequestMeta(
                version=VERSION,
                request_id=str(uuid4()),
                idempotency_key=key or None,
                expect_ack="ack" in self._features,
                retry_count=options.retry_count if options is not None else 0,
                timeout_ms=max(1, int(seconds * 1000)),
                timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            )
        )

    async def unwrap_answer(self, answer: McpResponse, what: str) -> McpResponse:
        """The answer without delivery metadata, and with its whole result.

        Raises UpstreamNack, UpstreamOutcomeUnknown, TransferIntegrityError, InvalidUpstreamResponse,
        ResponseNotStored or UpstreamLost.
        """
        if answer.error:
            metadata, answer = _split_error(answer)
            if metadata.final_status in _WITHOUT_ANSWER and metadata.processed is None:
                # A gateway had this attempt refused, and does not know the outcome of the one before.
                raise self._failure(metadata, what)
            return answer
        metadata, result = await _split_result(answer.result)
        if metadata.ack is False or (metadata.final_status in _WITHOUT_ANSWER and not metadata.processed):
            discard_payload(result)
            raise self._failure(metadata, what)
        if metadata.chunked is not None and "chunking" in self._features:
            discard_payload(result)
            _, result = await _split_result(await self._fetch_transfer(metadata.chunked, what))
        return answer if result is answer.result else msgspec.structs.replace(answer, result=result)

    def _failure(self, metadata: RmcpResponseMeta, what: str) -> UpstreamNack | UpstreamOutcomeUnknown:
        code = (metadata.error_code or "")[:_LONGEST_CODE]
        if metadata.ack is not False and metadata.processed is None:
            return UpstreamOutcomeUnknown(self._spec.name, what, code)
        error = UpstreamNack(self._spec.name, what, code)
        error.effect = Effect.DONE if metadata.processed else Effect.NONE
        error.retryable = error.effect is Effect.NONE and code in RETRYABLE
        return error

    # Results in chunks.

    async def _fetch_transfer(self, chunked: RmcpTransfer, what: str) -> Payload:
        countable = chunked.chunk_size >= 1 and 1 <= chunked.total <= _MOST_PARTS
        if not countable or chunked.total != -(-chunked.size // chunked.chunk_size):
            reason = "a result in parts whose numbers do not fit together"
            raise InvalidUpstreamResponse(self._spec.name, what, reason)
        assembly, digest = MessageAssembler(self._limits or _LIMITS), hashlib.sha256()
        try:
            assembly.add(_OPENING)
            for first in range(0, chunked.total, _AT_ONCE):
                indexes = range(first, min(first + _AT_ONCE, chunked.total))
                for part in await self._fetch_chunks(chunked, indexes, what):
                    digest.update(part)
                    await asyncio.to_thread(assembly.add, part)
            if digest.hexdigest() != chunked.sha256.lower():
                raise TransferIntegrityError(f"the result of {what!r}")
            await asyncio.to_thread(assembly.add, _CLOSING)
            result = (await asyncio.to_thread(assembly.finish)).result
        except (MalformedMessage, MessageTooLarge) as error:
            raise unusable_answer(self._spec.name, what, error) from error
        finally:
            assembly.discard()
        # Let the server drop the result; otherwise it expires there.
        params = {"transfer_id": Raw(msgspec.json.encode(chunked.transfer_id))}
        with suppress(HeadgateError, UpstreamSessionExpired):
            discard_payload((await self._send_request(DONE_METHOD, params)).result)
        return result

    async def _fetch_chunks(self, chunked: RmcpTransfer, indexes: range, what: str) -> list[bytes]:
        fetching = [asyncio.ensure_future(self._fetch_chunk(chunked, index, what)) for index in indexes]
        try:
            return await asyncio.gather(*fetching)
        except (HeadgateError, UpstreamSessionExpired) as error:
            if isinstance(error, TransferIntegrityError):
                raise
            # The call was executed, so no error may report that it was not sent.
            reason = str(error) or "it forgot the session"
            raise UpstreamLost(self._spec.name, what, f"while its result was fetched: {reason}") from error
        finally:
            for fetch in fetching:
                fetch.cancel()

    async def _fetch_chunk(self, chunked: RmcpTransfer, index: int, what: str) -> bytes:
        params = {"transfer_id": Raw(msgspec.json.encode(chunked.transfer_id)), "index": Raw(b"%d" % index)}
        for _ in range(_FETCH_ATTEMPTS):
            answer = await self._send_request(CHUNK_METHOD, params)
            part = await asyncio.to_thread(_verified_chunk, chunked, index, answer)
            if part is not None:
                return part
        raise TransferIntegrityError(f"part {index} of the result of {what!r}")


async def _split_result(result: Payload) -> tuple[RmcpResponseMeta, Payload]:
    """The delivery metadata of a result, and the result without it."""
    found = [NO_RESPONSE_META]

    def take(meta: dict[str, Raw]) -> None:
        found.append(pop_response_meta(meta))

    if not isinstance(result, bytes):
        rest: Payload = await asyncio.to_thread(with_edited_meta_on_disk, result, take)
    elif not any(mark in result for mark in _MARKS):
        return NO_RESPONSE_META, result
    elif len(result) <= _LARGE_BYTES:
        rest = with_edited_meta(result, take)
    else:
        rest = await asyncio.to_thread(with_edited_meta, result, take)
    return found[-1], rest


def _split_error(answer: McpResponse) -> tuple[RmcpResponseMeta, McpResponse]:
    """The delivery metadata in the `data` of an error, and the error without it."""
    if not any(mark in answer.error for mark in _MARKS):
        return NO_RESPONSE_META, answer
    found = [NO_RESPONSE_META]
    try:
        members = decode_object(answer.error)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return NO_RESPONSE_META, answer
    if "data" not in members:
        return NO_RESPONSE_META, answer
    data = with_edited_meta(bytes(members["data"]), lambda meta: found.append(pop_response_meta(meta)))
    members["data"] = Raw(data)
    return found[-1], msgspec.structs.replace(answer, error=encode_object(members))


def _verified_chunk(chunked: RmcpTransfer, index: int, answer: McpResponse) -> bytes | None:
    """The bytes of one chunk; None if they do not match its metadata."""
    result = answer.result
    try:
        whole = result if isinstance(result, bytes) else b"".join(result.chunks())
        chunk = msgspec.json.decode(whole, type=RmcpChunk)
        data = base64.b64decode(chunk.data, validate=True)
    except (DecodeError, UnicodeDecodeError, binascii.Error, ValueError):
        return None
    finally:
        discard_payload(result)
    expected = min(chunked.chunk_size, chunked.size - index * chunked.chunk_size)
    named = (chunk.transfer_id, chunk.index, len(data)) == (chunked.transfer_id, index, expected)
    return data if named and hashlib.sha256(data).hexdigest() == chunk.sha256.lower() else None
