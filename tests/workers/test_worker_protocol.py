"""What the gateway and a worker say to each other arrives as it was said, or an end is noticed."""

import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from headgate.workers.worker_protocol import (
    FileRange,
    read_exactly,
    receive_job,
    receive_reply,
    send_job,
    send_reply,
)

Ends = tuple[socket.socket, socket.socket]
WAIT_SECONDS = 5.0


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(WAIT_SECONDS)
    with closing(ours), closing(theirs):
        yield ours, theirs


def meanwhile(work: Callable[[], None]) -> threading.Thread:
    """More than a socket holds can only be sent while the other side reads."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("content", [b"", b"{}", bytes(range(256)) * 20_000])
def test_a_job_arrives_with_its_result(ends: Ends, content: bytes) -> None:
    ours, theirs = ends
    said = meanwhile(lambda: send_job(ours, b"job", "näme", content))
    order = receive_job(theirs)
    said.join(WAIT_SECONDS)
    assert order is not None
    assert (order.job, order.entry, bytes(order.content)) == (b"job", "näme", content)


def test_one_job_after_the_other(ends: Ends) -> None:
    ours, theirs = ends
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        send_job(ours, b"1", "a", b"one")
        send_job(ours, b"2", "b", FileRange(file.fileno(), 2, 3))
        send_job(ours, b"3", "c", b"three")
        orders = [receive_job(theirs) for _ in range(3)]
    assert [bytes(order.content) for order in orders if order] == [b"one", b"234", b"three"]
    assert [order.job for order in orders if order] == [b"1", b"2", b"3"]


def test_a_file_is_handed_over_without_its_bytes_and_stays_readable_when_it_is_closed_here(
    ends: Ends,
) -> None:
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 5_000_000 + b"end")
        file.flush()
        # The other side does not read yet, so this would not return if it sent the bytes.
        send_job(ours, b"job", "a", FileRange(file.fileno(), 4_999_999, 4))
    order = receive_job(theirs)
    assert order is not None
    assert isinstance(order.content, memoryview)
    assert bytes(order.content) == b"xend"
    # The descriptor that came is closed; a map may hold one of its own.
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_end_of_the_gateway_is_no_job(ends: Ends) -> None:
    ours, theirs = ends
    ours.close()
    assert receive_job(theirs) is None


@pytest.mark.parametrize("kept", [1, 24, 30])
def test_half_a_job_is_an_end_too(ends: Ends, kept: int) -> None:
    ours, theirs = ends
    other, listener = socket.socketpair()
    with closing(other), closing(listener):
        send_job(other, b"job", "name", b"content")
        ours.sendall(listener.recv(1000)[:kept])
    ours.close()
    with pytest.raises(ConnectionResetError):
        receive_job(theirs)


@pytest.mark.parametrize("said", [b"", b"done", b"x" * 3_000_000])
def test_an_answer_arrives(ends: Ends, said: bytes) -> None:
    ours, theirs = ends
    told = meanwhile(lambda: send_reply(theirs, said))
    assert receive_reply(ours) == said
    told.join(WAIT_SECONDS)


def test_a_worker_that_is_gone_has_no_answer(ends: Ends) -> None:
    ours, theirs = ends
    theirs.sendall(b"\0\0\0")
    theirs.close()
    with pytest.raises(OSError, match="gone"):
        receive_reply(ours)
    with pytest.raises(OSError):  # noqa: PT011 (what the system says of it differs)
        send_job(ours, b"job", "a", b"x" * 1_000_000)


def test_a_worker_that_takes_too_long_has_no_answer(ends: Ends) -> None:
    ours, _ = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        read_exactly(ours, 1)


def test_a_reply_that_arrives_byte_by_byte_must_be_complete_in_time(ends: Ends) -> None:
    ours, theirs = ends
    stopped = threading.Event()

    def drip() -> None:
        while not stopped.wait(0.01):
            theirs.send(b"\0")

    theirs.sendall(struct.pack(">Q", 1_000_000))
    dripping = meanwhile(drip)
    try:
        with pytest.raises(TimeoutError):
            receive_reply(ours, 0.1)
    finally:
        stopped.set()
        dripping.join(WAIT_SECONDS)
