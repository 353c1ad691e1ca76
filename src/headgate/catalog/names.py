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

    def claim(self, public_name: str, server: str, tool: str) -> None:
        """Remember the first owner."""


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


def allot(
    tools: list[tuple[str, str]], limit: int, owners: Owners, reserved: Mapping[str, object] | None = None
) -> dict[tuple[str, str], str]:
    """A distinct public name for each (server, tool).

    Whoever had a name first keeps it, also when another server with the same name is connected sooner after a
    restart: a call must never reach a tool that the client did not mean.
    """
    taken: dict[str, tuple[str, str]] = {}
    names: dict[tuple[str, str], str] = {}
    for key in tools:
        plain = public_name(*key, limit)
        owner = owners.owner(plain) or taken.get(plain)
        free = (owner is None or owner == key) and plain not in (reserved or ())
        name = plain if free else with_hash(plain, *key, limit)
        names[key] = _distinct(name, key, taken, limit)
        taken[names[key]] = key
    _claim_contested(tools, names, limit, owners)
    return names


def _distinct(name: str, key: tuple[str, str], taken: Mapping[str, object], limit: int) -> str:
    salt = 0
    while name in taken:
        salt += 1
        name = with_hash(name, key[0], f"{key[1]}\0{salt}", limit)
    return name


def _claim_contested(
    tools: list[tuple[str, str]], names: dict[tuple[str, str], str], limit: int, owners: Owners
) -> None:
    """Remember who owns the names that several tools would have; the others need no memory."""
    wanted: dict[str, int] = {}
    for key in tools:
        plain = public_name(*key, limit)
        wanted[plain] = wanted.get(plain, 0) + 1
    for key, name in names.items():
        if wanted.get(name, 0) > 1 and owners.owner(name) is None:
            owners.claim(name, *key)
