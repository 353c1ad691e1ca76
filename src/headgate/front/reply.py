"""An answer on its way to a client, in memory or from disk."""

from collections.abc import Iterator

import msgspec

from headgate.domain.payload import Payload, size_of
from headgate.wire.envelope import encode_failure, one_line


class Reply(msgspec.Struct):
    """One message whose large part may still be on disk."""

    head: bytes
    payload: Payload = b""
    tail: bytes = b""
    # Of an answer that is not part of a stream.
    status: int = 200
    # Whether it carries a result.
    succeeded: bool = True

    @property
    def whole(self) -> bytes | None:
        """The message, unless it is on disk."""
        return self.head + self.payload + self.tail if isinstance(self.payload, bytes) else None

    @property
    def size(self) -> int:
        """How many bytes the message has."""
        return len(self.head) + size_of(self.payload) + len(self.tail)

    @property
    def memory_bytes(self) -> int:
        """How much of it is in memory."""
        return self.size if isinstance(self.payload, bytes) else len(self.head) + len(self.tail)

    def chunks(self) -> Iterator[bytes]:
        """The message piece by piece."""
        whole = self.whole
        if whole is not None:
            yield whole
            return
        yield self.head
        yield from self.payload.chunks()  # type: ignore[union-attr]
        yield self.tail

    def lines(self) -> Iterator[bytes]:
        """The message piece by piece, without line breaks."""
        return map(one_line, self.chunks())

    def close(self) -> None:
        """Give disk space back."""
        if not isinstance(self.payload, bytes):
            self.payload.close()


def result(id: bytes, payload: Payload, *, opening: bytes = b"") -> Reply:
    """A successful response; `opening` goes before the first member of the result, which is on disk."""
    head = b'{"jsonrpc":"2.0","id":' + id + b',"result":'
    if isinstance(payload, bytes) or not opening:
        return Reply(head, payload, b"}")
    return Reply(head + b"{" + opening + b",", _Tail(payload), b"}")


def failure(id: bytes, error: bytes) -> Reply:
    """An error response."""
    return Reply(encode_failure(id, error), succeeded=False)


class _Tail:
    """An object on disk without its opening brace."""

    def __init__(self, payload: Payload) -> None:
        assert not isinstance(payload, bytes)
        self._payload = payload

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._payload.size - 1

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return next(self.chunks())[:1]

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order."""
        chunks = self._payload.chunks()
        yield next(chunks)[1:]
        yield from chunks

    def close(self) -> None:
        """Give disk space back."""
        self._payload.close()
