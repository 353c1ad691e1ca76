"""Merges the capabilities and instructions of all servers into those of the gateway."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import DecodeError

from headgate.protocol.protocol_version import Era, era_of
from headgate.schema.keywords import as_object

# An extension whose results only a peer of the same era can read.
_ERA_BOUND = "io.modelcontextprotocol/tasks"

# Methods that the gateway answers itself while no server has the capability.
_POSSIBLE = (
    b'{"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},'
    b'"completions":{},"logging":{}}'
)

# All servers together; every conversation pays for it.
_MOST_INSTRUCTIONS = 65_536
# Of capabilities that the gateway does not know.
_MOST_EXTRA_BYTES = 64 * 1024
# Declarations for clients that see different servers.
_MOST_MERGED = 256


class ServerDeclaration(msgspec.Struct, frozen=True):
    """The declaration of one server at its initialization."""

    version: str
    capabilities: str = "{}"
    instructions: str = ""


class DeclarationStore(Protocol):
    """Stores the declarations of servers across restarts."""

    def ability(self, server: str) -> ServerDeclaration | None:
        """The stored declaration."""

    def remember_ability(self, server: str, ability: ServerDeclaration) -> None:
        """Store a declaration."""


class MergedCapabilities:
    """The union of the servers' capabilities; none is declared that no server has."""

    def __init__(self, memory: DeclarationStore) -> None:
        self._memory = memory
        self._order: tuple[str, ...] = ()
        self._declarations: dict[str, ServerDeclaration] = {}
        # Computed once: declarations can be large, and every client needs them.
        self._merged: dict[tuple[Era, tuple[str, ...], bool], bytes] = {}

    def set_servers(self, servers: Sequence[str]) -> None:
        """Set the servers, in the order of the configuration."""
        self._order = tuple(servers)
        before, self._declarations = self._declarations, {}
        for server in servers:
            ability = before.get(server) or self._memory.ability(server)
            if ability is not None:
                self._declarations[server] = ability
        self._merged.clear()

    def declare(self, server: str, ability: ServerDeclaration) -> None:
        if server in self._order:
            self._declarations[server] = ability
            self._merged.clear()
            self._memory.remember_ability(server, ability)

    @property
    def undeclared(self) -> list[str]:
        """The servers that have never declared their capabilities."""
        return [server for server in self._order if server not in self._declarations]

    def capabilities(
        self, era: Era, servers: tuple[str, ...] | None = None, *, more_to_come: bool = False
    ) -> bytes:
        """The capabilities for a client of that era that sees these servers, or all.

        With `more_to_come`, those that starting servers may have are included.
        """
        key = (era, self._order if servers is None else servers, more_to_come)
        if key not in self._merged:
            if len(self._merged) >= _MOST_MERGED:
                self._merged.clear()
            self._merged[key] = self._merge(*key)
        return self._merged[key]

    def _merge(self, era: Era, servers: tuple[str, ...], more_to_come: bool) -> bytes:  # noqa: FBT001 (a key)
        # In any case the gateway lists tools and notifies of changes.
        merged: dict[str, Any] = {"tools": {"listChanged": True}}
        if more_to_come:
            merged |= msgspec.json.decode(_POSSIBLE)
        room = _MOST_EXTRA_BYTES
        for _, ability in self._named(servers):
            try:
                declared = msgspec.json.decode(ability.capabilities, type=dict[str, Any])
            except (DecodeError, RecursionError):
                continue
            for name in ("prompts", "resources", "completions", "logging"):
                if isinstance(declared.get(name), dict):
                    listed = {"listChanged": True} if name in ("prompts", "resources") else {}
                    merged.setdefault(name, listed)
            if as_object(declared.get("resources")).get("subscribe") is True:
                merged["resources"]["subscribe"] = True
            room = _add_more(merged, declared, room, same_era=era_of(ability.version) is era)
        if len(servers) > 1 and "tasks" in merged:
            # `tasks/list` names no task, so it cannot be routed to a server.
            merged["tasks"] = {key: value for key, value in merged["tasks"].items() if key != "list"}
        return msgspec.json.encode(merged)

    def instructions(self, servers: tuple[str, ...] | None = None) -> str:
        """The instructions of these servers, or all; each under its name if there are several."""
        servers = self._order if servers is None else servers
        advice = [
            (server, ability.instructions) for server, ability in self._named(servers) if ability.instructions
        ]
        room = _MOST_INSTRUCTIONS
        if sum(len(text) for _, text in advice) > room:
            # The most for each, so that all together fit and short ones stay whole.
            longest = 0
            for position, length in enumerate(sorted(len(text) for _, text in advice)):
                longest = room // (len(advice) - position)
                if length > longest:
                    break
                room -= length
            advice = [(server, shortened(text, longest)) for server, text in advice]
        if len(servers) == 1:
            return advice[0][1] if advice else ""
        return "\n\n".join(f"# {server}\n\n{text}" for server, text in advice)

    def _named(self, servers: tuple[str, ...]) -> list[tuple[str, ServerDeclaration]]:
        return [(server, self._declarations[server]) for server in servers if server in self._declarations]


def _add_more(merged: dict[str, Any], declared: dict[str, Any], room: int, *, same_era: bool) -> int:
    """Merge capabilities that the gateway only passes on: extensions, experiments, tasks within one era.

    Returns the bytes left for other servers.
    """
    for name in ("extensions", "experimental"):
        known = merged.get(name, {})
        for key, settings in as_object(declared.get(name)).items():
            size = len(key) + len(msgspec.json.encode(settings))
            if key not in known and size <= room and (same_era or key != _ERA_BOUND):
                known[key] = settings
                room -= size
        if known:
            merged[name] = known
    tasks = declared.get("tasks")
    if same_era and isinstance(tasks, dict) and len(msgspec.json.encode(tasks)) <= room:
        merged.setdefault("tasks", tasks)
    return room


def shortened(text: str, most: int) -> str:
    """The text cut to that many characters, with a note if it was longer."""
    if len(text) <= most:
        return text
    notice = f"\n[Cut by the gateway: {len(text):,} characters]"
    return text[: most - len(notice)] + notice if most > len(notice) else text[:most]
