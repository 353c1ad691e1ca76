"""The socket protocol between the gateway and a worker process: fixed header, job, then bytes or a file
descriptor.
"""

import mmap
import os
import socket
import struct

import msgspec

from headgate.results.content import Content

# The length of the job, of the name of the entry, and of the result; where in a file the result begins, and
# whether there is one.
_HEADER = struct.Struct(">IIQQ?")
_REPLY_HEADER = struct.Struct(">Q")
_MAX_RECEIVE_BYTES = 1024 * 1024


class WorkerJob(msgspec.Struct, frozen=True):
    """A job with what it is about."""

    job: bytes
    # By which the worker knows a result again that it has opened before.
    entry: str
    content: Content | memoryview


class FileRange(msgspec.Struct, frozen=True):
    """A part of a file."""

    descriptor: int
    start: int
    size: int


def send_job(channel: socket.socket, job: bytes, entry: str, content: bytes | FileRange) -> None:
    """Give a worker its job; raises OSError when it is gone."""
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
    """The next job; None when the gateway has closed its end."""
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


def send_reply(channel: socket.socket, answer: bytes) -> None:
    """Give the gateway its answer."""
    channel.sendall(_REPLY_HEADER.pack(len(answer)))
    channel.sendall(answer)


def receive_reply(channel: socket.socket) -> bytes:
    """The worker's answer; raises OSError when it is gone or takes too long."""
    (size,) = _REPLY_HEADER.unpack(read_exactly(channel, _REPLY_HEADER.size))
    return read_exactly(channel, size)


def read_exactly(channel: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; raises OSError when there are not so many."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = channel.recv(min(size - len(pieces), _MAX_RECEIVE_BYTES))
        if not piece:
            raise ConnectionResetError("the other side is gone")
        pieces += piece
    return bytes(pieces)
