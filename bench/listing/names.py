"""How many public names of real tools are shortened, cut or hashed: in version 0.1.0 and now.

`python -m bench.listing.names`. `HEADGATE_CATALOG_DATA` names a directory with one `SERVER.json` for each
server, the result of its tools/list; without it the catalogs of the tests are read.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, every_catalogue
from headgate.catalog.public_names import (
    Key,
    allocate_names,
    former_names,
    former_whole,
    hash_suffix,
    public_name,
    sanitise,
)

LIMITS: Final = (49, 60)
_NO_LIMIT: Final = 1_000_000


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The names that one version gives to a set of tools under one limit."""

    version: str
    limit: int
    tools: int
    # Not `{server}_{tool}` in full, with and without a hash.
    shortened: int
    hashed: int
    # The tool's own name is not in it as a whole.
    own_cut: int
    # None of the words of the tool's own name is in it.
    unreadable: int
    # With two underscores in a row, or one at the end.
    untidy: int


def read_tools() -> list[Key]:
    """Server and tool, in the order of the servers' names."""
    place = os.environ.get("HEADGATE_CATALOG_DATA")
    found = _of_directory(Path(place)) if place else every_catalogue()
    return [(one.server, json.loads(tool)["name"]) for one in found for tool in one.tools]


def _of_directory(place: Path) -> list[Catalogue]:
    files = sorted(place.glob("*.json"))
    return [Catalogue(one.stem, tuple(map(bytes, _listing(one).tools))) for one in files]


def _listing(path: Path) -> "_Listing":
    return msgspec.json.decode(path.read_bytes(), type=_Listing)


def counted(tools: Sequence[Key], limit: int) -> list[Counted]:
    """Version 0.1.0 and this one, beside each other."""
    now = {key: public_name(*key, _NO_LIMIT) for key in tools}
    former = {key: former_whole(*key) for key in tools}
    return [
        _count("0.1.0", limit, former, _former(tools, limit)),
        _count("now", limit, now, allocate_names(list(dict.fromkeys(tools)), limit, _NoFormerNames())),
    ]


def _former(tools: Sequence[Key], limit: int) -> dict[Key, str]:
    """As servers in this order got their names in version 0.1.0."""
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for key in tools:
        plain, hashed = former_names(key, limit)
        names[key] = hashed if plain in taken else plain
        taken.add(names[key])
    return names


def _count(version: str, limit: int, whole: dict[Key, str], names: dict[Key, str]) -> Counted:
    return Counted(
        version=version,
        limit=limit,
        tools=len(names),
        shortened=sum(name != whole[key] and not _is_hashed(key, name) for key, name in names.items()),
        hashed=sum(_is_hashed(key, name) for key, name in names.items()),
        own_cut=sum((sanitise(key[1]) or "tool") not in name for key, name in names.items()),
        unreadable=sum(not _is_readable(key, name) for key, name in names.items()),
        untidy=sum("__" in name or name.endswith("_") for name in names.values()),
    )


def _is_hashed(key: Key, name: str) -> bool:
    return name.endswith(hash_suffix(*key))


def _is_readable(key: Key, name: str) -> bool:
    """Whether something of the tool's own name can be read behind the server part."""
    words = sanitise(key[1]).split("_")
    own = name.removesuffix(hash_suffix(*key)).removeprefix(sanitise(key[0]))
    return any(word in own for word in words)


class _NoFormerNames:
    """Owners of a gateway that is started for the first time."""

    def owner(self, public_name: str) -> Key | None:
        """It had no owner."""
        return None

    def claim(self, names: object) -> None:
        """Nothing is kept."""


class _Listing(msgspec.Struct):
    tools: list[msgspec.Raw]


def main() -> None:
    """Print the table."""
    tools = read_tools()
    columns = ("limit", "version", "tools", "shortened", "hashed", "own name cut", "unreadable", "untidy")
    print("|", " | ".join(columns), "|")
    print("|---|---|---|---|---|---|---|---|")
    for limit in LIMITS:
        for one in counted(tools, limit):
            cells = (limit, one.version, one.tools, one.shortened, one.hashed, one.own_cut, one.unreadable)
            print("|", " | ".join(map(str, (*cells, one.untidy))), "|")


if __name__ == "__main__":
    main()
