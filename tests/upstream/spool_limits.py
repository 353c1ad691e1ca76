"""Where large messages go in these tests, and whether anything stayed there."""

import os
from pathlib import Path

from headgate.domain.payload import Payload
from headgate.upstream.message_assembly import MessageLimits

SPOOL_ABOVE = 8 * 1024
LARGEST = 1024 * 1024


def limits(directory: Path) -> MessageLimits:
    """Small ones, so that a test need not send megabytes."""
    return MessageLimits(LARGEST, SPOOL_ABOVE, directory / "spool")


def in_memory(directory: Path) -> MessageLimits:
    """Nothing goes to disk, for tests that are about other things."""
    return MessageLimits(LARGEST, LARGEST, directory / "spool")


def open_files(directory: Path) -> list[str]:
    """The files of the spool that this process holds open, and those that have a name."""
    held = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            held.append(os.readlink(descriptor))
        except FileNotFoundError:
            # The one that lists the others.
            continue
    spool = str(directory / "spool")
    named = [str(path) for path in Path(spool).glob("**/*")]
    return [path for path in held if path.startswith(spool)] + named


def taken(payload: Payload) -> bytes:
    """Its bytes; what is on disk is given back."""
    if isinstance(payload, bytes):
        return payload
    try:
        data = b"".join(payload.chunks())
        assert payload.size == len(data)
        return data
    finally:
        payload.close()
