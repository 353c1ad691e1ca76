"""Parses documents in a confined process, which is started again when a document has ended it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MOST_SECONDS
from headgate.knowledge.readers.parser_child import ParseReply
from headgate.workers.process_pool import ProcessPool, ProcessStartError

log = logging.getLogger("headgate.knowledge.readers")

_reply = msgspec.msgpack.Decoder(ParseReply)


class ParserUnavailable(DocumentUnreadable):
    """No process can be started; the file itself may be readable."""


class ParserProcess:
    """Parses documents one at a time; a hostile document ends only the process that parses it."""

    def __init__(self, seconds: float = MOST_SECONDS) -> None:
        self._seconds = seconds
        # Parsers write warnings to standard error, which would tear a progress bar.
        self._processes = ProcessPool("headgate.knowledge.readers.parser_child", max_processes=1, quiet=True)
        self._lock = asyncio.Lock()

    async def parse(self, extension: str, content: bytes, *, file: str = "") -> ParsedDocument:
        """The document in a file with this extension; raises DocumentUnreadable, also on a timeout.

        Warnings of the parser are logged under the name `file`.
        """
        async with self._lock:
            reply = await self._send(extension, content)
        if reply.trouble:
            log.warning("a parser stumbled over %r:\n%s", file or extension, reply.trouble)
        if reply.parsed is None:
            raise DocumentUnreadable(reply.reason)
        return reply.parsed

    async def close(self) -> None:
        """End the process."""
        await self._processes.close()

    async def _send(self, extension: str, content: bytes) -> ParseReply:
        try:
            reply = await self._processes.run(extension.encode(), content, seconds=self._seconds)
        except ProcessStartError as error:
            raise ParserUnavailable(f"cannot be read now: no process can be started ({error})") from error
        except TimeoutError as error:
            raise DocumentUnreadable(f"takes longer than {self._seconds:g} s to be read; split it") from error
        except OSError as error:
            raise DocumentUnreadable(
                "ended the process that read it; it may be broken, or too large"
            ) from error
        return _reply.decode(reply)


@asynccontextmanager
async def open_parser_process(seconds: float = MOST_SECONDS) -> AsyncIterator[ParserProcess]:
    """A process for as long as the block lasts; it is started with the first document."""
    parsing = ParserProcess(seconds)
    try:
        yield parsing
    finally:
        await parsing.close()
