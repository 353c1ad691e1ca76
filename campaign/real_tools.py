"""Definitions of real servers' tools, dealt out to as many servers as a case wants."""

import functools
import itertools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CATALOGS = Path(__file__).resolve().parents[1] / "tests" / "data" / "catalogs.jsonl.xz"


def dealt(servers: int, tools: int) -> Iterator[list[bytes]]:
    """The definitions of each server in turn; no two of one server are called the same."""
    deck = itertools.cycle(_deck())
    for _ in range(servers):
        hand = list(itertools.islice(deck, tools))
        yield [_encoded(tool | {"name": f"{tool['name'][:24]}_{place}"}) for place, tool in enumerate(hand)]


@functools.cache
def _deck() -> list[dict[str, Any]]:
    with lzma.open(_CATALOGS, "rt", encoding="utf-8") as lines:
        return [tool for line in lines for tool in json.loads(line)["listing"]["tools"]]


def _encoded(tool: dict[str, Any]) -> bytes:
    return json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode()
