"""What a client says of itself."""

from functools import lru_cache

import msgspec
from msgspec import DecodeError

# Longer names than this are nobody's, and each would be kept.
_LONGEST_NAME = 200
_LARGEST_BYTES = 4 * 1024


class _Info(msgspec.Struct):
    name: str = ""


@lru_cache(maxsize=256)
def _read(info: bytes) -> str:
    try:
        return msgspec.json.decode(info, type=_Info).name[:_LONGEST_NAME]
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def client_name(info: bytes) -> str:
    """What the client calls itself in its `clientInfo`; empty where it does not say."""
    return _read(info) if info and len(info) <= _LARGEST_BYTES else ""
