"""An MCP server on stdio: a blocking loop that reads lines and writes prepared bytes, nothing else."""

import argparse
import os
import select
from typing import Final

import msgspec

from testkit.servers.prepared_answers import Answers, Envelope

_INPUT: Final = 0
_OUTPUT: Final = 1
_envelopes: Final = msgspec.json.Decoder(Envelope)


def main() -> None:
    """Answer until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10)
    parser.add_argument("--modern", action="store_true", help="also speak 2026-07-28")
    options = parser.parse_args()
    answers = Answers(tools=options.tools, modern=options.modern)
    rest = b""
    while chunk := os.read(_INPUT, 1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        pieces: list[bytes] = []
        for line in lines:
            if line:
                pieces += reply(answers, line)
        if pieces:
            _write(pieces)


def reply(answers: Answers, line: bytes) -> tuple[bytes, ...]:
    """The pieces of the answer to one line; none for a notification."""
    message = _envelopes.decode(line)
    if not message.id:
        return ()
    result = answers.result(message)
    if result is None:
        return (
            b'{"jsonrpc":"2.0","id":',
            bytes(message.id),
            b',"error":{"code":-32601,"message":"unknown"}}\n',
        )
    return (b'{"jsonrpc":"2.0","id":', bytes(message.id), b',"result":', result, b"}\n")


def _write(pieces: list[bytes]) -> None:
    # Large results are written where they lie; joining them would copy 10 MB per answer.
    if sum(map(len, pieces)) < 1 << 16:
        pieces = [b"".join(pieces)]
    for piece in pieces:
        view = memoryview(piece)
        while view:
            try:
                view = view[os.write(_OUTPUT, view) :]
            except BlockingIOError:
                select.select([], [_OUTPUT], [])


if __name__ == "__main__":
    main()
