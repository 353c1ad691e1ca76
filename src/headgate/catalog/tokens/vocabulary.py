"""The vocabulary o200k_base as the package has it, made once by scripts/make_tokens.py."""

import sys
from array import array
from functools import cache
from importlib import resources
from typing import NamedTuple

import msgspec

from headgate.catalog.tokens.merges import Merges
from headgate.catalog.tokens.words import Splitter


class Vocabulary(NamedTuple):
    """How a text is split into words, and how the bytes of a word become tokens."""

    splitter: Splitter
    merges: Merges


class _Content(msgspec.Struct):
    singles: bytes
    starts: bytes
    rights: bytes
    wholes: bytes
    edges: bytes
    kinds: str


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary of the package; reading it takes some milliseconds, once."""
    file = resources.files("headgate.catalog.tokens").joinpath("data/o200k.msgpack")
    read = msgspec.msgpack.decode(file.read_bytes(), type=_Content)
    merges = Merges(read.singles, _numbers(read.starts), _numbers(read.rights), _numbers(read.wholes))
    return Vocabulary(Splitter(_numbers(read.edges), read.kinds), merges)


def _numbers(content: bytes) -> "array[int]":
    numbers = array("I", content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
