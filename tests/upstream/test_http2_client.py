"""HTTP/2: the limit of response headers, and a server that goes away, as in RFC 9113."""

import asyncio

import h2.config
import h2.connection
import h2.events
import hyperframe.frame
import pytest

from headgate.upstream.http.http1_client import ConnectionDropped
from headgate.upstream.http.http2_client import _Http2Connection, _RequestNotProcessed

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


class HeldTransport(asyncio.Transport):
    """Keeps what the client writes; the test speaks for the server."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


async def test_a_goaway_that_names_no_stream_cuts_only_responses_that_have_not_begun() -> None:
    connection, transport = _Http2Connection(asyncio.get_running_loop()), HeldTransport()
    connection.connection_made(transport)
    connection.begin()
    head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
    begun, unanswered = connection.open_stream(head, b""), connection.open_stream(head, b"")
    encoder = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False)).encoder
    answer = hyperframe.frame.HeadersFrame(1, encoder.encode([(b":status", b"200")]))
    answer.flags.add("END_HEADERS")
    goaway = hyperframe.frame.GoAwayFrame(0, last_stream_id=0)
    settings = hyperframe.frame.SettingsFrame(0)
    connection.data_received(settings.serialize() + answer.serialize() + goaway.serialize())
    # It may be sent again on another connection.
    with pytest.raises(_RequestNotProcessed):
        await unanswered.head()
    assert not transport.closed
    connection.data_received(hyperframe.frame.DataFrame(1, b"whole", flags=["END_STREAM"]).serialize())
    assert await begun.read(100) == b"whole"
    begun.close()
    assert transport.closed
