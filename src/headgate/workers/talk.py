"""How the gateway and its workers talk: a head of fixed size, then the job, then the result or its file."""

import mmap
import os
import socket
import struct

import msgspec

from headgate.responses.content import Content

# The length of the job, of the name of the entry, and of the result; where in a file the result begins, and
# whether there is one.
_HEAD = struct.Struct(">IIQQ?")
_ANSWER = struct.Struct(">Q")
_MOST_AT_ONCE = 1024 * 1024


class Order(msgspec.Struct, frozen=True):
    """A job with what it is about."""

    job: bytes
    # By which the worker knows a result again that it has opened before.
    entry: str
    content: Content | memoryview


class File(msgspec.Struct, frozen=True):
    """A part of a file."""

    descriptor: int
    start: int
    size: int


def hand_over(channel: socket.socket, job: bytes, entry: str, content: bytes | File) -> None:
    """Give a worker its job; raises OSError when it is gone."""
    name = entry.encode()
    if isinstance(content, File):
        head = _HEAD.pack(len(job), len(name), content.size, content.start, True)
        socket.send_fds(channel, [head], [content.descriptor])
        channel.sendall(name + job)
        return
    head = _HEAD.pack(len(job), len(name), len(content), 0, False)
    channel.sendall(head + name + job)
    channel.sendall(content)


def receive(channel: socket.socket) -> Order | None:
    """The next job; None when the gateway has closed its end."""
    head, descriptors, _, _ = socket.recv_fds(channel, _HEAD.size, 1)
    if not head:
        return None
    head += read(channel, _HEAD.size - len(head))
    job_size, name_size, size, start, on_disk = _HEAD.unpack(head)
    name = read(channel, name_size).decode()
    job = read(channel, job_size)
    if not on_disk:
        return Order(job, name, read(channel, size))
    try:
        mapped = mmap.mmap(descriptors[0], 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptors[0])
    return Order(job, name, memoryview(mapped)[start : start + size])


def send(channel: socket.socket, answer: bytes) -> None:
    """Give the gateway its answer."""
    channel.sendall(_ANSWER.pack(len(answer)))
    channel.sendall(answer)


def answer(channel: socket.socket) -> bytes:
    """The worker's answer; raises OSError when it is gone or takes too long."""
    (size,) = _ANSWER.unpack(read(channel, _ANSWER.size))
    return read(channel, size)


def read(channel: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; raises OSError when there are not so many."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = channel.recv(min(size - len(pieces), _MOST_AT_ONCE))
        if not piece:
            raise ConnectionResetError("the other side is gone")
        pieces += piece
    return bytes(pieces)
