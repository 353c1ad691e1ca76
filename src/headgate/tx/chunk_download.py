"""Downloads large results in chunks, verifies each, and assembles them."""

import asyncio
import hashlib
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from headgate.domain.errors import Effect
from headgate.protocol.rmcp import CHUNK_METHOD, DONE_METHOD, META, RmcpTransfer
from headgate.tx.errors import TxError
from headgate.tx.failures import exception_failure
from headgate.tx.rmcp import delivery_metadata_of

log = logging.getLogger("headgate.tx")

Fetch = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]

_PARALLEL: Final = 4
# Attempts per chunk before the transfer fails.
_TRIES: Final = 3
# Interrupted transfers that are kept, to resume when the same result is announced again.
_MOST_UNFINISHED: Final = 2


class ChunkDownloader:
    """Turns the announcement of a chunked result into the result."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished: dict[tuple[str, int], dict[int, bytes]] = {}

    async def assemble(self, result: dict[str, Any], fetch: Fetch) -> dict[str, Any]:
        """The assembled result; raises TxError INTEGRITY_ERROR when it does not match its announcement.

        An interrupted transfer that is announced again fetches only the missing chunks.
        """
        delivery_status = delivery_metadata_of(result.get("_meta"))
        announced = delivery_status.get("chunked")
        if announced is None:
            return result
        try:
            transfer = self._read_announcement(announced)
            whole = _decoded(await self._download(transfer, fetch))
        except TxError:
            raise
        except Exception as error:
            # The call was executed, even if its chunks are lost.
            failure = exception_failure(error)
            code = "NETWORK_ERROR" if failure.is_answer else failure.code
            raise TxError(failure.display_message, code, retryable=True, effect=Effect.DONE) from error
        # Let the peer delete the result now instead of after its expiry.
        try:
            await fetch(DONE_METHOD, {"transfer_id": transfer.transfer_id})
        except Exception:
            log.debug("the peer did not take back transfer %s", transfer.transfer_id, exc_info=True)
        kept = {key: value for key, value in delivery_status.items() if key != "chunked"}
        whole["_meta"] = {**(whole.get("_meta") or {}), META: kept}
        if "resultType" in result:
            # The result has the era of its announcement.
            whole.setdefault("resultType", result["resultType"])
        return whole

    def _read_announcement(self, announced: object) -> RmcpTransfer:
        try:
            transfer = msgspec.convert(announced, RmcpTransfer)
        except msgspec.ValidationError as error:
            raise _integrity_error(
                f"the announcement of a chunked result cannot be read ({error})"
            ) from error
        sizes = transfer.chunk_size > 0 and 0 < transfer.size <= self._max_bytes
        if not sizes or transfer.total != -(-transfer.size // transfer.chunk_size):
            raise _integrity_error(
                f"a chunked result of {transfer.size} bytes in {transfer.total} chunks was announced; "
                f"at most {self._max_bytes} bytes are taken"
            )
        return transfer

    async def _download(self, transfer: RmcpTransfer, fetch: Fetch) -> bytes:
        name = (transfer.sha256, transfer.chunk_size)
        parts = self._unfinished.pop(name, {})
        try:
            await _fetch_missing(transfer, parts, fetch)
        except BaseException:
            self._unfinished[name] = parts
            while len(self._unfinished) > _MOST_UNFINISHED:
                del self._unfinished[next(iter(self._unfinished))]
            raise
        whole = b"".join(parts[index] for index in range(transfer.total))
        if len(whole) != transfer.size or hashlib.sha256(whole).hexdigest() != transfer.sha256:
            raise _integrity_error("a result that came in chunks does not match its sha-256")
        return whole


async def _fetch_missing(transfer: RmcpTransfer, parts: dict[int, bytes], fetch: Fetch) -> None:
    missing = iter([index for index in range(transfer.total) if index not in parts])

    async def fetch_some() -> None:
        for index in missing:
            parts[index] = await _fetch_one(transfer, index, fetch)

    fetching = [asyncio.create_task(fetch_some()) for _ in range(min(_PARALLEL, transfer.total))]
    try:
        await asyncio.gather(*fetching)
    finally:
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)


async def _fetch_one(transfer: RmcpTransfer, index: int, fetch: Fetch) -> bytes:
    problem = ""
    for tries in range(1, _TRIES + 1):
        try:
            chunk = await fetch(CHUNK_METHOD, {"transfer_id": transfer.transfer_id, "index": index})
        except Exception as error:
            # Reading a chunk is idempotent, so it may be retried after any failure.
            if tries == _TRIES or exception_failure(error).effect is Effect.NONE:
                raise
            continue
        with suppress(NotBase64, ValueError, TypeError):
            data = b64decode(chunk.get("data") or "", validate=True)
            if hashlib.sha256(data).hexdigest() == chunk.get("sha256"):
                return data
        problem = f"chunk {index} of {transfer.total} of a large result does not match its sha-256"
    raise _integrity_error(problem)


def _decoded(whole: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(whole, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _integrity_error("a result that came in chunks is not a JSON object") from error


def _integrity_error(problem: str) -> TxError:
    # The call was executed: only its answer is damaged.
    return TxError(problem, "INTEGRITY_ERROR", retryable=True, effect=Effect.DONE)
