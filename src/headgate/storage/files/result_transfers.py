"""Very large results that clients fetch in chunks, each in an unnamed file."""

import asyncio
import base64
import hashlib
import io
import logging
import os
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.errors import TransferNotFound
from headgate.domain.errors import InvalidArguments
from headgate.domain.mcp_request import McpRequest, McpResponse, result_owner_of
from headgate.domain.payload import Payload, payload_size
from headgate.event_loop import finish_uncancelled
from headgate.protocol.jsonrpc import encode_object
from headgate.protocol.rmcp import CHUNK_METHOD, DONE_METHOD, RmcpChunk, RmcpResponseMeta, RmcpTransfer
from headgate.storage.files.payload_file import payload_chunks, write_unnamed

log = logging.getLogger("headgate.storage")

T = TypeVar("T", str, int)

_CHUNKING = "chunking"
CHUNK_BYTES: Final = 1024 * 1024
# A client that lost its connection reconnects within this time, or not at all.
_KEPT_SECONDS = 600.0
# Each is an open file.
_MAX_TRANSFERS = 100
# 192 bits, so that an id cannot be guessed.
_ID_BYTES = 24


class _ResultTransfer(msgspec.Struct):
    """One result and the agent that may fetch it."""

    agent: str
    file: io.FileIO
    size: int
    used: float

    @property
    def total(self) -> int:
        return -(-self.size // CHUNK_BYTES)


@asynccontextmanager
async def open_transfers(
    directory: Path, above_bytes: int, now: Callable[[], float], *, most: int = _MAX_TRANSFERS
) -> AsyncIterator["ResultTransfers"]:
    """Transfers with files in `directory`, which end with the block; `now` counts seconds."""
    transfers = ResultTransfers(directory, above_bytes, now, most=most)
    try:
        yield transfers
    finally:
        transfers.close()


class ResultTransfers:
    """Gives results of more than `above_bytes` in chunks to clients that negotiated `chunking`.

    Chunks can be fetched in any order and any number of times, until the client reports that it is done or
    fetches none for ten minutes. Beyond `most` transfers, the agent with the most loses its oldest. An agent
    cannot use the ids of another.
    """

    def __init__(
        self, directory: Path, above_bytes: int, now: Callable[[], float], *, most: int = _MAX_TRANSFERS
    ) -> None:
        self._directory = directory
        self._above_bytes = above_bytes
        self._now = now
        self._most = most
        # In order of last use.
        self._transfers: OrderedDict[str, _ResultTransfer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._transfers)

    def needs_chunks(self, request: McpRequest, answer: McpResponse) -> bool:
        delivery_request = request.delivery_request
        if delivery_request is None or _CHUNKING not in delivery_request.features or answer.error:
            # Nearly every answer.
            return False
        return payload_size(answer.result) > self._above_bytes

    async def announce_chunks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        """An answer that announces the chunks of a result; the result itself when it cannot be written."""
        self.expire()
        id, result = secrets.token_urlsafe(_ID_BYTES), answer.result
        writing = asyncio.ensure_future(asyncio.to_thread(_write, self._directory, result))
        try:
            file, digest = await finish_uncancelled(writing, lambda written: written[0].close())
        except OSError as error:
            log.warning("result not kept", extra={"path": str(self._directory), "reason": str(error)})
            return answer
        transfer = _ResultTransfer(
            result_owner_of(request.session, request.caller),
            file,
            os.fstat(file.fileno()).st_size,
            self._now(),
        )
        self._transfers[id] = transfer
        while len(self._transfers) > self._most:
            self._evict_one()
        chunked = RmcpTransfer(
            transfer_id=id, size=transfer.size, chunk_size=CHUNK_BYTES, total=transfer.total, sha256=digest
        )
        # The gateway's announcement has no `resultType`, which a server's answer may have.
        return msgspec.structs.replace(answer, result=_announcement(chunked), typed=False)

    def _evict_one(self) -> None:
        """Remove the oldest transfer of the agent with the most, so that it cannot crowd out others."""
        owned = Counter(transfer.agent for transfer in self._transfers.values())
        [(agent, _)] = owned.most_common(1)
        id = next(id for id, transfer in self._transfers.items() if transfer.agent == agent)
        self._transfers.pop(id).file.close()

    def is_chunk_method(self, method: str) -> bool:
        """Whether the method fetches a chunk or ends a transfer."""
        return method in (CHUNK_METHOD, DONE_METHOD)

    async def read_chunk(self, request: McpRequest) -> McpResponse:
        """A chunk, or an empty result at the end; raises InvalidArguments or TransferNotFound."""
        done = request.method == DONE_METHOD
        id = _read_param(request, "transfer_id", str, _DONE_EXAMPLE if done else _CHUNK_EXAMPLE)
        index = 0 if done else _read_param(request, "index", int, _CHUNK_EXAMPLE)
        transfer = self._find(request, id)
        if done:
            del self._transfers[id]
            transfer.file.close()
            return McpResponse(b"{}")
        if not 0 <= index < transfer.total:
            problem = f"index is 0 to {transfer.total - 1}, not {index}"
            raise InvalidArguments(CHUNK_METHOD, problem, hint="ask for a part that there is")
        # Another descriptor, which outlives the transfer.
        descriptor = os.dup(transfer.file.fileno())
        reading = asyncio.to_thread(_chunk, descriptor, transfer.total, id, index)
        return McpResponse(await asyncio.shield(asyncio.ensure_future(reading)))

    def _find(self, request: McpRequest, id: str) -> _ResultTransfer:
        self.expire()
        transfer = self._transfers.get(id)
        if transfer is None or transfer.agent != result_owner_of(request.session, request.caller):
            raise TransferNotFound(id)
        transfer.used = self._now()
        self._transfers.move_to_end(id)
        return transfer

    def expire(self) -> None:
        """Remove transfers that were not used for ten minutes."""
        oldest = self._now() - _KEPT_SECONDS
        while self._transfers:
            id, transfer = next(iter(self._transfers.items()))
            if transfer.used > oldest:
                return
            del self._transfers[id]
            transfer.file.close()

    def close(self) -> None:
        while self._transfers:
            self._transfers.popitem()[1].file.close()


def _write(directory: Path, result: Payload) -> tuple[io.FileIO, str]:
    digest = hashlib.sha256()

    def hashed_chunks() -> Iterator[bytes]:
        for chunk in payload_chunks(result):
            digest.update(chunk)
            yield chunk

    file = write_unnamed(directory, hashed_chunks())
    if not isinstance(result, bytes):
        result.close()
    return file, digest.hexdigest()


def _announcement(chunked: RmcpTransfer) -> bytes:
    text = (
        f"This result has {chunked.size} bytes. It waits to be fetched in {chunked.total} parts "
        f"with {CHUNK_METHOD}, under the transfer_id that stands in its _meta."
    )
    content = Raw(msgspec.json.encode([{"type": "text", "text": text}]))
    meta = Raw(msgspec.json.encode({"rmcp": RmcpResponseMeta(chunked=chunked)}))
    return encode_object({"content": content, "isError": Raw(b"false"), "_meta": meta})


_CHUNK_EXAMPLE = 'give {"transfer_id": "...", "index": 0}'
_DONE_EXAMPLE = 'give {"transfer_id": "..."}'
_TYPE_NAMES = {str: "a text", int: "a whole number"}


def _read_param(request: McpRequest, name: str, kind: type[T], example: str) -> T:
    raw = request.params.get(name)
    if raw is None:
        raise InvalidArguments(request.method, f"{name} is not given", hint=example)
    try:
        return msgspec.json.decode(raw, type=kind)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(request.method, f"{name} must be {_TYPE_NAMES[kind]}", hint=example) from error


def _chunk(descriptor: int, total: int, id: str, index: int) -> bytes:
    try:
        data = os.pread(descriptor, CHUNK_BYTES, index * CHUNK_BYTES)
    finally:
        os.close(descriptor)
    chunk = RmcpChunk(
        transfer_id=id,
        index=index,
        total=total,
        sha256=hashlib.sha256(data).hexdigest(),
        data=base64.b64encode(data).decode(),
    )
    return msgspec.json.encode(chunk)
