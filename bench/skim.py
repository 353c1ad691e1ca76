"""Section `skim`: finding the members of a large message while it streams by, beside parsing it whole."""

import json
import re
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import msgspec

from bench import machine
from bench.options import Options
from bench.tables import figure, table
from headgate.protocol.json_scan import JsonObjectScanner
from testkit.servers.prepared_answers import payload_result

_SIZE: Final = 10_000_000
_DEPTH: Final = 100_000
_PIECES: Final = (64 * 1024, 256 * 1024)
_REPEATS: Final = 5
# Strings as a regular expression sees them. In a piece in which a string does not end, every escaped quote
# looks like the beginning of one and is followed to the end of the piece.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
# The same bytes each time, so that one sees what larger pieces cost; more would take minutes.
_REGEX_BYTES: Final = 256 * 1024
_REGEX_PIECES: Final = (16 * 1024, *_PIECES)
_HEAD: Final = b'{"jsonrpc":"2.0","id":1,"result":'


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One way to read one text; CPU is the median of the repeats, None where the way cannot read it."""

    text: str
    way: str
    read_bytes: int
    cpu_seconds: float | None


def run(options: Options) -> dict[str, object]:
    """Measure every way on every text, print one table and return its figures."""
    size, repeats = (_SIZE // 10, 1) if options.quick else (_SIZE, _REPEATS)
    regex_bytes = _REGEX_BYTES // 4 if options.quick else _REGEX_BYTES
    load_before = machine.load_average()
    lines: list[Line] = []
    for name, text in texts(size, _DEPTH).items():
        print(f"bench: skim, {name}", file=sys.stderr, flush=True)
        lines += measure(name, text, repeats)
    lines += _regex(texts(size, 1)["escaped string"], regex_bytes)
    print(_report(lines))
    return {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "repeats": repeats,
        "lines": msgspec.to_builtins(lines),
    }


def texts(size: int, depth: int) -> dict[str, bytes]:
    """Messages whose results have about `size` bytes, and one of `depth` arrays in each other."""
    result = b'{"content":[{"type":"text","text":"%b"}]}'
    row = b'{"id":1234567,"name":"node-7","ok":true,"tags":["a","b"]},'
    return {
        "plain string": _message(result % (b"x" * size)),
        # Quotes and line breaks of a report, escaped.
        "escaped string": _message(payload_result(size)),
        "small objects": _message(b'{"rows":[%bnull]}' % (row * (size // len(row)))),
        f"{depth:,} deep": _message(b"[" * depth + b"]" * depth),
    }


def skim(pieces: list[bytes]) -> dict[str, tuple[int, int]]:
    """Where the members of the message stand."""
    scanner = JsonObjectScanner()
    for piece in pieces:
        scanner.feed(piece)
    return scanner.finish()


def measure(name: str, text: bytes, repeats: int) -> list[Line]:
    """The skimmer in pieces of each size, and both parsers on the whole text."""
    ways: dict[str, Callable[[], object]] = {}
    for size in _PIECES:
        pieces = _cut(text, size)
        found = skim(pieces)["result"]
        if found != (len(_HEAD), len(text) - 1):
            raise AssertionError(f"the result of {name!r} was found at {found}")
        ways[f"skim, {size // 1024} KiB pieces"] = lambda pieces=pieces: skim(pieces)  # type: ignore[misc]
    ways["msgspec.json.decode, whole"] = lambda: msgspec.json.decode(text)
    ways["json.loads, whole"] = lambda: json.loads(text)
    return [
        Line(text=name, way=way, read_bytes=len(text), cpu_seconds=_cpu_seconds(work, repeats))
        for way, work in ways.items()
    ]


def _regex(text: bytes, size: int) -> list[Line]:
    print("bench: skim, the regular expression", file=sys.stderr, flush=True)
    # From the middle of the string, where no piece holds its beginning or its end.
    part = text[len(text) // 2 :][:size]
    lines = []
    for piece_size in _REGEX_PIECES:
        if piece_size > size:
            continue
        pieces = _cut(part, piece_size)
        # Once: it takes seconds, and needs no finer figure.
        seconds = _cpu_seconds(lambda pieces=pieces: [_STRINGS.sub(b"", piece) for piece in pieces], 1)  # type: ignore[misc]
        way = f"regex, {piece_size // 1024} KiB pieces"
        lines.append(Line(text="escaped string", way=way, read_bytes=len(part), cpu_seconds=seconds))
    return lines


def _message(result: bytes) -> bytes:
    return _HEAD + result + b"}"


def _cut(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _cpu_seconds(work: Callable[[], object], repeats: int) -> float | None:
    """Processor time of one run, or None when the nesting is too deep for it."""
    took = []
    for _ in range(repeats):
        began = time.process_time()
        try:
            work()
        except RecursionError:
            return None
        took.append(time.process_time() - began)
    return median(took)


def _report(lines: list[Line]) -> str:
    header = ("text and way", "MB", "CPU s", "MB/s")
    rows = [
        [
            f"{one.text}: {one.way}",
            figure(one.read_bytes / 1e6),
            "cannot" if one.cpu_seconds is None else f"{one.cpu_seconds:.4f}",
            figure(one.read_bytes / 1e6 / one.cpu_seconds if one.cpu_seconds else None),
        ]
        for one in lines
    ]
    return table("skim: one large message, in pieces and whole", header, rows)
