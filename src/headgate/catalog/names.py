"""Public names: `{server}_{tool}`, accepted by every client, never two alike, the same after a restart."""

import hashlib
import re
from collections.abc import Mapping
from typing import Protocol

# What model providers allow, less the prefix that a client puts before every name of this gateway.
LONGEST_NAME = 64
_OTHER = re.compile(r"[^a-z0-9_]")
_RUNS = re.compile(r"_+")
_HASH_LENGTH = 6


class Owners(Protocol):
    """Remembers across restarts whose a public name is."""

    def owner(self, public_name: str) -> tuple[str, str] | None:
        """The server and tool that had the name first, if anybody had."""

    def claim(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Remember who owns each of these names now."""


def default_limit(gateway_name: str) -> int:
    """What is left of 64 characters after `mcp__<gateway>__`, the prefix that common clients add."""
    return max(10, LONGEST_NAME - len(f"mcp__{gateway_name}__"))


def public_name(server: str, tool: str, limit: int) -> str:
    """The name of a tool as clients see it, before collisions are looked at."""
    name = f"{_sanitise(server) or 'server'}_{_sanitise(tool) or 'tool'}"
    if name[0].isdigit():
        name = f"tool_{name}"
    return name[:limit]


def _sanitise(text: str) -> str:
    return _RUNS.sub("_", _OTHER.sub("_", text.lower())).strip("_")


def with_hash(name: str, server: str, tool: str, limit: int) -> str:
    """The name with a short stable hash, for a tool whose plain name belongs to another."""
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: limit - _HASH_LENGTH - 1]}_{digest}"


def allot(tools: list[tuple[str, str]], limit: int, owners: Owners) -> dict[tuple[str, str], str]:
    """A distinct public name for each (server, tool).

    Whoever had a name first keeps it, also when another server of the same name is connected sooner after a
    restart: a call must never reach a tool that the client did not mean.
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    plain = {key: public_name(*key, limit) for key in tools}
    # Owners first, so that nobody else takes what is theirs.
    for key in sorted(tools, key=lambda key: owners.owner(plain[key]) != key):
        owner = owners.owner(plain[key])
        name = plain[key] if owner in (None, key) else with_hash(plain[key], *key, limit)
        names[key] = _distinct(name, key, taken, limit)
        taken.add(names[key])
    owners.claim({name: key for key, name in names.items()})
    return names


def _distinct(name: str, key: tuple[str, str], taken: set[str], limit: int) -> str:
    salt = 0
    while name in taken:
        salt += 1
        name = with_hash(name, key[0], key[1] if salt == 1 else f"{key[1]}\0{salt}", limit)
    return name
