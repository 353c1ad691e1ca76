"""Parses documents in a process of its own, which is started again when a document has ended it."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MOST_SECONDS
from headgate.knowledge.readers.parser_protocol import ParseReply, ParseRequest, receive, send

log = logging.getLogger("headgate.knowledge.readers")

# What the process needs of our environment, in which secrets may stand.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")

_answer = msgspec.msgpack.Decoder(ParseReply)


class ParserUnavailable(DocumentUnreadable):
    """Nothing may be wrong with the file itself."""


class ParserProcess:
    """Parses one document after the other elsewhere; nothing in a document delays or ends whoever asks."""

    def __init__(self, seconds: float = MOST_SECONDS) -> None:
        self._seconds = seconds
        self._process: _ParserChild | None = None
        self._lock = asyncio.Lock()

    async def parse(self, extension: str, content: bytes, *, file: str = "") -> ParsedDocument:
        """What is in a file with this extension; raises Unreadable, also when it takes too long.

        Where something in it cannot be read, the log calls it `file`.
        """
        async with self._lock:
            answer = await self._send_request(msgspec.msgpack.encode(ParseRequest(extension, content)))
        if answer.trouble:
            log.warning("a parser stumbled over %r:\n%s", file or extension, answer.trouble)
        if answer.parsed is None:
            raise DocumentUnreadable(answer.reason)
        return answer.parsed

    async def _send_request(self, order: bytes) -> ParseReply:
        process = self._process or await self._started()
        # Kept only when it has answered: what was stopped in the middle is of no use.
        self._process = None
        try:
            answer = await asyncio.to_thread(process.ask, order, self._seconds)
        except TimeoutError as error:
            await process.end()
            raise DocumentUnreadable(f"takes longer than {self._seconds:g} s to be read; split it") from error
        except OSError as error:
            await process.end()
            raise DocumentUnreadable(
                "ended the process that read it; it may be broken, or too large"
            ) from error
        except BaseException:
            await process.end()
            raise
        self._process = process
        return answer

    async def _started(self) -> "_ParserChild":
        start = asyncio.ensure_future(asyncio.to_thread(_ParserChild))
        try:
            return await asyncio.shield(start)
        except OSError as error:
            raise ParserUnavailable(
                f"cannot be read now: no process can be started ({error.strerror})"
            ) from error
        except asyncio.CancelledError:
            # A thread cannot be stopped, and what it has started must be ended.
            await (await start).end()
            raise

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.end()


class _ParserChild:
    """The process and the way to it; what is not a coroutine blocks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headgate.knowledge.readers.parser_child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Libraries write there what would tear a progress bar.
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        self._channel = ours
        # Whoever closes the channel waits for whoever reads from it: its number may be another's at once.
        self._busy = threading.Lock()

    def ask(self, order: bytes, seconds: float) -> ParseReply:
        """Raises OSError when the process was lost, of which TimeoutError is one."""
        with self._busy:
            self._channel.settimeout(seconds)
            send(self._channel, order)
            message = receive(self._channel, seconds)
        if message is None:
            raise ConnectionResetError
        return _answer.decode(message)

    async def end(self) -> None:
        """Leave nothing of it, also when nobody waits any more."""
        self._process.kill()
        await asyncio.shield(asyncio.to_thread(self._clear))

    def _clear(self) -> None:
        self._process.wait()
        with self._busy:
            self._channel.close()


@asynccontextmanager
async def open_parser_process(seconds: float = MOST_SECONDS) -> AsyncIterator[ParserProcess]:
    """A process for as long as the block lasts; it is started with the first document."""
    parsing = ParserProcess(seconds)
    try:
        yield parsing
    finally:
        await parsing.close()
