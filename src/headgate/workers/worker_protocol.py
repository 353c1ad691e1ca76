"""The socket protocol of confined child processes: header, job, then bytes or a file descriptor."""

import mmap
import os
import socket
import struct
import time

import msgspec

# Lengths of the job, of the entry's name and of the content; where in a file the content begins, and whether
# a file descriptor comes with the header.
_HEADER = struct.Struct(">IIQQ?")
_REPLY_HEADER = struct.Struct(">Q")
_MAX_RECEIVE_BYTES = 1024 * 1024


class WorkerJob(msgspec.Struct, frozen=True):
    """A job and the content that it works on."""

    job: bytes
    # Names the content, so that the worker can reuse its parsed form; empty where nothing is reused.
    entry: str
    content: bytes | memoryview


class FileRange(msgspec.Struct, frozen=True):
    """A part of a file."""

    descriptor: int
    start: int
    size: int


def send_job(channel: socket.socket, job: bytes, entry: str, content: bytes | FileRange) -> None:
    """Send a job to a worker; raises OSError when it is gone, TimeoutError when it does not read."""
    name = entry.encode()
    if isinstance(content, FileRange):
        head = _HEADER.pack(len(job), len(name), content.size, content.start, True)
        socket.send_fds(channel, [head], [content.descriptor])
        channel.sendall(name + job)
        return
    head = _HEADER.pack(len(job), len(name), len(content), 0, False)
    channel.sendall(head + name + job)
    channel.sendall(content)


def receive_job(channel: socket.socket) -> WorkerJob | None:
    """The next job; None when the parent has closed its end."""
    head, descriptors, _, _ = socket.recv_fds(channel, _HEADER.size, 1)
    if not head:
        return None
    head += read_exactly(channel, _HEADER.size - len(head))
    job_size, name_size, size, start, on_disk = _HEADER.unpack(head)
    name = read_exactly(channel, name_size).decode()
    job = read_exactly(channel, job_size)
    if not on_disk:
        return WorkerJob(job, name, read_exactly(channel, size))
    try:
        mapped = mmap.mmap(descriptors[0], 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptors[0])
    return WorkerJob(job, name, memoryview(mapped)[start : start + size])


def send_reply(channel: socket.socket, reply: bytes) -> None:
    """Send a worker's reply; raises OSError when the parent is gone."""
    channel.sendall(_REPLY_HEADER.pack(len(reply)))
    channel.sendall(reply)


def receive_reply(channel: socket.socket, seconds: float | None = None) -> bytes:
    """The worker's reply; raises OSError when it is gone, TimeoutError when `seconds` pass before its end."""
    deadline = None if seconds is None else time.monotonic() + seconds
    (size,) = _REPLY_HEADER.unpack(read_exactly(channel, _REPLY_HEADER.size, deadline))
    return read_exactly(channel, size, deadline)


def read_exactly(channel: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """So many bytes; raises OSError when the other side is gone, TimeoutError after the deadline."""
    pieces = bytearray()
    while len(pieces) < size:
        if deadline is not None:
            # Zero would make the socket non-blocking.
            channel.settimeout(max(0.001, deadline - time.monotonic()))
        piece = channel.recv(min(size - len(pieces), _MAX_RECEIVE_BYTES))
        if not piece:
            raise ConnectionResetError("the other side is gone")
        pieces += piece
    return bytes(pieces)
