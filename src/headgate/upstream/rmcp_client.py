"""rmcp with one server: delivery metadata of calls and answers, and results transferred in chunks."""

import asyncio
import base64
import binascii
import hashlib
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
# To look through a larger result takes so long that others would notice.
_LARGE_BYTES = 256 * 1024
# What a transfer may be; the same as the largest message of a server, and more parts than anybody needs.
_LIMITS = MessageLimits(2048 * 1024 * 1024, 1024 * 1024, Path(tempfile.gettempdir()))
_MOST_PARTS = 1_000_000
_AT_ONCE = 4
_FETCH_ATTEMPTS = 3
_LONGEST_CODE = 200
# How a call ended to which the server has no answer of its own, because it is a gateway too.
_WITHOUT_ANSWER = ("failed", "timeout")
# What a result has around it when it comes as a message.
_OPENING, _CLOSING = b'{"jsonrpc":"2.0","id":1,"result":', b"}"

# Asks the upstream something in the gateway's own name; raises UpstreamError or SessionGone.
SendGatewayRequest = Callable[[str, dict[str, Raw]], Awaitable[McpResponse]]


class RmcpClient:
    """Writes and reads `_meta.rmcp` for one upstream, and fetches results that come in parts."""

    def __init__(
        self,
        spec: ServerSpec,
        features: frozenset[str],
        ask: SendGatewayRequest,
        limits: MessageLimits | None = None,
    ) -> None:
        self._spec = spec
        self._features = features
        self._send_request = ask
        self._limits = limits or _LIMITS

    def request_meta(self, call: UpstreamCall) -> Raw:
        """What a call of a tool says of its delivery; its transaction is the gateway's own."""
        delivery_options = call.delivery_options
        seconds = self._spec.timeout_seconds
        if delivery_options is not None and delivery_options.deadline is not None:
            seconds = min(seconds, delivery_options.deadline - asyncio.get_running_loop().time())
        keyed = delivery_options is not None and "idempotency" in self._features
        return encode_rmcp_meta(
            RmcpRequestMeta(
                version=VERSION,
                request_id=str(uuid4()),
                idempotency_key=(delivery_options.key or None) if keyed and delivery_options else None,
                expect_ack="ack" in self._features,
                retry_count=delivery_options.retry_count if delivery_options is not None else 0,
                timeout_ms=max(1, int(seconds * 1000)),
                timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            )
        )

    async def unwrap_answer(self, answer: McpResponse, what: str) -> McpResponse:
        """The answer without what it says of its delivery, and with all of its result.

        Raises NotProcessed, UpstreamUnsure, BrokenTransfer, InvalidAnswer, AnswerNotStored or UpstreamLost.
        """
        if answer.error:
            said, answer = _split_error(answer)
            if said.final_status in _WITHOUT_ANSWER and said.processed is None:
                # A gateway was refused this attempt, and does not know what became of the one before.
                raise self._failure(said, what)
            return answer
        said, result = await _split_result(answer.result)
        if said.ack is False or (said.final_status in _WITHOUT_ANSWER and not said.processed):
            discard_payload(result)
            raise self._failure(said, what)
        if said.chunked is not None and "chunking" in self._features:
            discard_payload(result)
            _, result = await _split_result(await self._fetch_transfer(said.chunked, what))
        return answer if result is answer.result else msgspec.structs.replace(answer, result=result)

    def _failure(self, said: RmcpResponseMeta, what: str) -> UpstreamNack | UpstreamOutcomeUnknown:
        code = (said.error_code or "")[:_LONGEST_CODE]
        if said.ack is not False and said.processed is None:
            return UpstreamOutcomeUnknown(self._spec.name, what, code)
        error = UpstreamNack(self._spec.name, what, code)
        error.effect = Effect.DONE if said.processed else Effect.NONE
        error.retryable = error.effect is Effect.NONE and code in RETRYABLE
        return error

    # A result in parts.

    async def _fetch_transfer(self, chunked: RmcpTransfer, what: str) -> Payload:
        """The whole result, in memory or on disk."""
        if not _is_consistent(chunked):
            raise InvalidUpstreamResponse(
                self._spec.name, what, "a result in parts whose numbers do not fit together"
            )
        assembly, digest = MessageAssembler(self._limits), hashlib.sha256()
        try:
            assembly.add(_OPENING)
            for first in range(0, chunked.total, _AT_ONCE):
                indexes = range(first, min(first + _AT_ONCE, chunked.total))
                for part in await self._fetch_chunks(chunked, indexes, what):
                    digest.update(part)
                    await asyncio.to_thread(assembly.add, part)
            if digest.hexdigest() != chunked.sha256.lower():
                raise TransferIntegrityError(f"the result of {what!r}")
            result = await asyncio.to_thread(_finish_transfer, assembly)
        except (MalformedMessage, MessageTooLarge) as error:
            raise unusable_answer(self._spec.name, what, error) from error
        finally:
            assembly.discard()
        await self._release_transfer(chunked)
        return result

    async def _fetch_chunks(self, chunked: RmcpTransfer, indexes: range, what: str) -> list[bytes]:
        """Some parts, fetched at the same time."""
        fetching = [asyncio.ensure_future(self._fetch_chunk(chunked, index, what)) for index in indexes]
        try:
            return await asyncio.gather(*fetching)
        except (HeadgateError, UpstreamSessionExpired) as error:
            if isinstance(error, TransferIntegrityError):
                raise
            # The call itself was carried out, so nothing may look as if it had not been sent.
            reason = str(error) or "it forgot the session"
            raise UpstreamLost(self._spec.name, what, f"while its result was fetched: {reason}") from error
        finally:
            for fetch in fetching:
                fetch.cancel()

    async def _fetch_chunk(self, chunked: RmcpTransfer, index: int, what: str) -> bytes:
        params = {
            "transfer_id": Raw(msgspec.json.encode(chunked.transfer_id)),
            "index": Raw(b"%d" % index),
        }
        for _ in range(_FETCH_ATTEMPTS):
            answer = await self._send_request(CHUNK_METHOD, params)
            part = await asyncio.to_thread(_verified_chunk, chunked, index, answer)
            if part is not None:
                return part
        raise TransferIntegrityError(f"part {index} of the result of {what!r}")

    async def _release_transfer(self, chunked: RmcpTransfer) -> None:
        """Let the server forget the result; one that does not hear of it forgets it in time."""
        params = {"transfer_id": Raw(msgspec.json.encode(chunked.transfer_id))}
        with suppress(HeadgateError, UpstreamSessionExpired):
            discard_payload((await self._send_request(DONE_METHOD, params)).result)


def _finish_transfer(assembly: MessageAssembler) -> Payload:
    """The result of which all parts are there; raises Garbled or TooLarge."""
    assembly.add(_CLOSING)
    return assembly.finish().result


async def _split_result(result: Payload) -> tuple[RmcpResponseMeta, Payload]:
    """What a result says of its delivery, and the result without it."""
    said = NO_RESPONSE_META

    def take(meta: dict[str, Raw]) -> None:
        nonlocal said
        said = pop_response_meta(meta)

    if not isinstance(result, bytes):
        rest: Payload = await asyncio.to_thread(with_edited_meta_on_disk, result, take)
    elif not any(mark in result for mark in _MARKS):
        return NO_RESPONSE_META, result
    elif len(result) <= _LARGE_BYTES:
        rest = with_edited_meta(result, take)
    else:
        rest = await asyncio.to_thread(with_edited_meta, result, take)
    return said, rest


def _split_error(answer: McpResponse) -> tuple[RmcpResponseMeta, McpResponse]:
    """What an error says of delivery in its `data`, and the error without it."""
    if not any(mark in answer.error for mark in _MARKS):
        return NO_RESPONSE_META, answer
    said = NO_RESPONSE_META

    def take(meta: dict[str, Raw]) -> None:
        nonlocal said
        said = pop_response_meta(meta)

    try:
        members = decode_object(answer.error)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return NO_RESPONSE_META, answer
    if "data" not in members:
        return NO_RESPONSE_META, answer
    members["data"] = Raw(with_edited_meta(bytes(members["data"]), take))
    return said, msgspec.structs.replace(answer, error=encode_object(members))


def _is_consistent(chunked: RmcpTransfer) -> bool:
    if chunked.chunk_size < 1 or not 1 <= chunked.total <= _MOST_PARTS:
        return False
    return chunked.total == -(-chunked.size // chunked.chunk_size)


def _verified_chunk(chunked: RmcpTransfer, index: int, answer: McpResponse) -> bytes | None:
    """The bytes of one part; None when they are not those that were promised."""
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
