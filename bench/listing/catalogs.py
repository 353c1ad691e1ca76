"""The tools of real servers, each as its server wrote it."""

import lzma
import random
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bench.process import ROOT

_FILE: Final = ROOT / "tests" / "data" / "catalogs.jsonl.xz"
# azure-mcp is there in two of its modes, one at a time: the one that it starts in by itself counts.
SECOND_MODE: Final = "azure-mcp-all-mode"
# What one person may have: files, a repository, its host, a chat and the web.
SMALL: Final = (
    "server-filesystem",
    "mcp-server-git",
    "server-github-npm",
    "server-slack",
    "mcp-server-fetch",
)
TOOLS_OF_A_SERVER: Final = 100
_SEED: Final = 7


class Catalogue(msgspec.Struct, frozen=True):
    """One server and the definitions of its tools."""

    server: str
    tools: tuple[bytes, ...]

    @property
    def listing(self) -> bytes:
        """The result of its tools/list."""
        return b'{"tools":' + array(self.tools) + b"}"


def array(definitions: Sequence[bytes]) -> bytes:
    """The tools array of a listing with these definitions."""
    return b"[" + b",".join(definitions) + b"]"


def every_catalogue() -> list[Catalogue]:
    """All of the file, in its order."""
    with lzma.open(_FILE, "rb") as lines:
        read = [msgspec.json.decode(line, type=_Line) for line in lines]
    return [Catalogue(one.server, tuple(map(bytes, one.listing.tools))) for one in read]


def without_second_mode(catalogues: Sequence[Catalogue]) -> list[Catalogue]:
    """Each server once."""
    return [one for one in catalogues if one.server != SECOND_MODE]


def small(catalogues: Sequence[Catalogue]) -> list[Catalogue]:
    """The few servers of a small set-up."""
    return [one for one in catalogues if one.server in SMALL]


def drawn(catalogues: Sequence[Catalogue], count: int) -> list[Catalogue]:
    """So many servers, the same each time; where there are too few, some come again under another name."""
    order = list(catalogues)
    random.Random(_SEED).shuffle(order)
    again = [Catalogue(f"{one.server}-2", one.tools) for one in order]
    return [*order, *again][:count]


def of_size(catalogues: Sequence[Catalogue], tools: int) -> list[Catalogue]:
    """So many tools of real servers on servers of a hundred; where there are too few, they come again."""
    every = [definition for one in drawn(catalogues, len(catalogues)) for definition in one.tools]
    found: list[Catalogue] = []
    for start in range(0, tools, TOOLS_OF_A_SERVER):
        numbers = range(start, min(tools, start + TOOLS_OF_A_SERVER))
        own = _with_names_of_their_own([every[number % len(every)] for number in numbers])
        found.append(Catalogue(f"server{len(found)}", tuple(own)))
    return found


def _with_names_of_their_own(definitions: Sequence[bytes]) -> list[bytes]:
    taken: set[str] = set()
    found = []
    for number, definition in enumerate(definitions):
        tool: dict[str, Any] = msgspec.json.decode(definition)
        if tool["name"] in taken:
            tool["name"] = f"{tool['name']}_{number}"
            definition = msgspec.json.encode(tool)  # noqa: PLW2901 (the same tool under another name)
        taken.add(tool["name"])
        found.append(definition)
    return found


class _Tools(msgspec.Struct):
    tools: list[msgspec.Raw]


class _Line(msgspec.Struct):
    server: str
    listing: _Tools
