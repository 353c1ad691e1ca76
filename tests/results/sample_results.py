"""Results of tools as servers send them: of every kind of block, and whatever else may stand in one."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

from headgate.results.content import MemoryScratch
from headgate.results.jobs import META_KEY
from headgate.results.parsed_result import ParsedResult
from headgate.upstream.message_assembly import SpooledValue, SpoolFile

IMAGE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def text(words: str, **more: Any) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words} | more


def resource(words: str) -> dict[str, Any]:
    """A block with a resource that is a text."""
    return {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": words}}


def result(*blocks: dict[str, Any], **members: Any) -> bytes:
    """A result with these blocks."""
    return json.dumps({"content": blocks} | members).encode()


def parsed_result(data: bytes) -> ParsedResult:
    """The result, ready to be worked on."""
    return ParsedResult(data, MemoryScratch())


async def spooled(directory: Path, data: bytes) -> SpooledValue:
    """The result as it stands on disk, within the message that it came in."""
    return await asyncio.to_thread(_spooled, directory, data)


def _spooled(directory: Path, data: bytes) -> SpooledValue:
    file = SpoolFile(directory / "spool")
    head = b'{"jsonrpc":"2.0","id":1,"result":'
    file.append(head + data + b"}")
    return SpooledValue(file, len(head), len(head) + len(data))


def members_of(data: bytes) -> dict[str, Raw]:
    """The members of an object, each as its own bytes."""
    return msgspec.json.decode(data, type=dict[str, Raw])


def blocks_of(data: bytes) -> list[bytes]:
    """The blocks of a result, each as its own bytes."""
    return [bytes(raw) for raw in msgspec.json.decode(members_of(data)["content"], type=list[Raw])]


def words_of(block: bytes) -> str | None:
    """The text of a block that has one."""
    output = json.loads(block)
    if output["type"] == "resource":
        output = output["resource"]
    words = output.get("text")
    return words if isinstance(words, str) else None


def texts_of(data: bytes) -> list[str]:
    """The texts of all blocks, in order."""
    return [words for words in map(words_of, blocks_of(data)) if words is not None]


def facts_of(data: bytes) -> dict[str, Any]:
    """What `_meta` says of what was left out."""
    facts: dict[str, Any] = json.loads(data)["_meta"][META_KEY]
    return facts


_WORDS = ("", "a", "name", "Straße", "naïve café", "😀", "\u2028", "\0", '"quoted"', "back\\slash", "x" * 40)
_NUMBERS = (0, -1, 1.5, -1e300, 10**400, True, None)
_OTHERS = (
    IMAGE,
    LINK,
    {"type": "audio", "data": "", "mimeType": "audio/wav", "annotations": {"priority": 1.0}},
    {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}},
    {"type": "hologram", "depth": [1, {"text": "no text of its own"}]},
    {"type": "text"},
)


class _Server:
    """Answers anything that a tool may answer; the same with the same chance."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def value(self, depth: int = 0) -> Any:
        match self._chance.randrange(5 if depth < 3 else 2):
            case 0:
                return self._chance.choice(_WORDS)
            case 1:
                return self._chance.choice(_NUMBERS)
            case 2:
                return [self.value(depth + 1) for _ in range(self._chance.randrange(6))]
            case _:
                return self.object(depth + 1)

    def object(self, depth: int = 0) -> dict[str, Any]:
        keys = self._chance.sample(_WORDS, self._chance.randrange(6))
        return {key: self.value(depth) for key in keys}

    def words(self) -> str:
        count = self._chance.choice((0, 1, 5, 40))
        match self._chance.randrange(3):
            case 0:
                return "\n".join(self._chance.choice(_WORDS) for _ in range(count))
            case 1:
                return json.dumps([self.object() for _ in range(count)], ensure_ascii=bool(count % 2))
            case _:
                return json.dumps({"total": count, "rows": [self.value() for _ in range(count)]})

    def block(self) -> dict[str, Any]:
        match self._chance.randrange(5):
            case 0 | 1:
                return text(self.words())
            case 2:
                return text(self.words(), _meta=self.object())
            case 3:
                return resource(self.words())
            case _:
                return self._chance.choice(_OTHERS)

    def answer(self, most_blocks: int) -> bytes:
        members = {
            "content": [self.block() for _ in range(self._chance.randrange(most_blocks + 1))],
            "structuredContent": {"rows": self.value(), **self.object()},
            "isError": bool(self._chance.randrange(2)),
            "_meta": self.object(),
            "resultType": "complete",
            "x-other": self.value(),
        }
        names = {"content", *self._chance.sample(list(members), self._chance.randrange(len(members)))}
        # Some say the structure first.
        output = {name: members[name] for name in self._chance.sample(sorted(names), len(names))}
        separators = self._chance.choice([(",", ":"), (", ", ": "), (" ,\n", " :\t")])
        plain = bool(self._chance.randrange(2))
        return json.dumps(output, ensure_ascii=plain, separators=separators).encode()


def results(most_blocks: int = 6) -> st.SearchStrategy[bytes]:
    """Anything that a tool may answer, in any way to write JSON."""
    return st.integers(0, 2**32).map(lambda seed: _Server(Random(seed)).answer(most_blocks))
