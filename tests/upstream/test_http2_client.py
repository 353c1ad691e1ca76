"""The limit of response headers over HTTP/2, by the sizes of RFC 9113."""

import asyncio

import h2.config
import h2.connection
import h2.events
import pytest

from headgate.upstream.http.http1_client import ConnectionDropped
from headgate.upstream.http.http2_client import _Http2Connection

MOST_HEADER_BYTES = 64 * 1024
# What each field counts for besides its name and value (RFC 9113, section 6.5.2).
FIELD_BYTES = 32
WAIT_SECONDS = 5.0


class PairedTransport(asyncio.Transport):
    """Hands what the client writes to a server in memory, and the server's answers back."""

    def __init__(self, client: _Http2Connection, header_bytes: int) -> None:
        super().__init__()
        self._client = client
        self._header_bytes = header_bytes
        self._server = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        self._server.initiate_connection()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for event in self._server.receive_data(bytes(data)):
            if isinstance(event, h2.events.RequestReceived):
                assert event.stream_id is not None
                self._server.send_headers(event.stream_id, fields(self._header_bytes), end_stream=True)
        asyncio.get_running_loop().call_soon(self._answer, self._server.data_to_send())

    def _answer(self, data: bytes) -> None:
        if data and not self._closed:
            self._client.data_received(data)

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        self._closed = True


def fields(size: int) -> list[tuple[bytes, bytes]]:
    """Response headers that count for exactly so many bytes."""
    status = (b":status", b"200")
    room = size - sum(map(len, status)) - FIELD_BYTES
    count = -(-room // 8192)
    each, rest = divmod(room, count)
    sizes = [each + (number < rest) for number in range(count)]
    return [status, *((b"x-%03d" % n, b"x" * (one - 5 - FIELD_BYTES)) for n, one in enumerate(sizes))]


async def status_of(header_bytes: int) -> int:
    connection = _Http2Connection(asyncio.get_running_loop())
    connection.connection_made(PairedTransport(connection, header_bytes))
    connection.begin()
    async with asyncio.timeout(WAIT_SECONDS):
        await connection.settled.wait()
        head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
        response = connection.open_stream(head, b"")
        await response.head()
    return response.status


async def test_headers_up_to_the_limit_are_taken() -> None:
    assert await status_of(MOST_HEADER_BYTES) == 200


async def test_one_byte_more_is_refused_with_the_reason() -> None:
    with pytest.raises(ConnectionDropped, match="its headers are larger than 64 KiB"):
        await status_of(MOST_HEADER_BYTES + 1)
