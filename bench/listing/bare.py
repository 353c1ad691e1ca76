"""The yardstick for a listing: a server that does nothing but send prepared bytes over HTTP.

`python bare.py PORT DIRECTORY` answers `POST /NAME` with the file NAME. It imports nothing of this project.
"""

import asyncio
import sys
from pathlib import Path
from typing import cast

_END = b"\r\n\r\n"


class Bare(asyncio.Protocol):
    """One connection."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._read += data
        while (end := self._read.find(_END)) >= 0:
            head = self._read[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self._read) < end + len(_END) + length:
                return
            name = self._read.split(b" ", 2)[1].removeprefix(b"/")
            self._read = self._read[end + len(_END) + length :]
            assert self._transport is not None
            self._transport.write(self._answers.get(name, _answer(b"")))


def _answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d" % len(body)
    return head + _END + body


async def main(port: int, directory: Path) -> None:
    """Serve until terminated."""
    answers = {file.name.encode(): _answer(file.read_bytes()) for file in directory.iterdir()}
    server = await asyncio.get_running_loop().create_server(lambda: Bare(answers), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
