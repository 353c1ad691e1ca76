"""state.json: name owners, protocol versions, capabilities and session preferences."""

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.catalog.capabilities import ServerDeclaration
from headgate.domain.regular_file import open_regular, read_regular

log = logging.getLogger("headgate.storage")

T = TypeVar("T")

# Servers that rename their tools all the time must not fill the disk; the least recently used go first.
_MAX_NAMES = 50_000
# Clients rarely end their sessions.
_MAX_SESSIONS = 1_000
# Of all sessions together; the largest go first.
_MAX_SESSION_BYTES = 8 * 1024 * 1024
_MAX_LISTINGS = 256


class PersistedState(msgspec.Struct):
    """The content of the file."""

    names: dict[str, tuple[str, str]] = {}
    versions: dict[str, str] = {}
    # The version, capabilities and instructions of each server.
    abilities: dict[str, ServerDeclaration] = {}
    # The log level and the subscriptions of each session, by a digest of its id.
    standings: dict[str, tuple[str, list[str]]] = {}
    # A digest of each listing as it was last sent.
    listings: dict[str, str] = {}
    # When the most used tools were determined, and which they are.
    favourites: tuple[float, list[tuple[str, str]]] = (0.0, [])


class StateFile:
    """The state, written atomically soon after a change; a lost file costs no more than a probe.

    On a running loop, changes are collected for `pause_seconds` and written in a thread; `flush` writes the
    rest.
    """

    def __init__(self, path: Path, pause_seconds: float = 1.0) -> None:
        self._path = path
        self._pause_seconds = pause_seconds
        self._state = _read(path)
        # The state and the file at the last read or write, to merge changes of other gateways.
        self._known = msgspec.json.encode(self._state)
        self._on_disk = _digest(path)
        self._session_bytes = {session: _size(uris) for session, (_, uris) in self._state.standings.items()}
        self._evict_sessions()
        self._changes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        # A thread may still be writing during `flush`.
        self._lock = threading.Lock()
        self._written = 0

    def owner(self, public_name: str) -> tuple[str, str] | None:
        """The server and tool that had the name first."""
        known = self._state.names
        owner = known.pop(public_name, None)
        if owner is not None:
            # Moved to the end, as the most recently used.
            known[public_name] = owner
        return owner

    def claim(self, names: Mapping[str, tuple[str, str]]) -> None:
        known = self._state.names
        if not names.items() <= known.items():
            known.update(names)
            for name in list(known)[: max(0, len(known) - _MAX_NAMES)]:
                del known[name]
            self._schedule_write()

    def version(self, server: str) -> str | None:
        """The protocol version that was last negotiated with this server."""
        return self._state.versions.get(server)

    def remember_version(self, server: str, version: str) -> None:
        if self._state.versions.get(server) != version:
            self._state.versions[server] = version
            self._schedule_write()

    def ability(self, server: str) -> ServerDeclaration | None:
        return self._state.abilities.get(server)

    def remember_ability(self, server: str, ability: ServerDeclaration) -> None:
        if self._state.abilities.get(server) != ability:
            self._state.abilities[server] = ability
            self._schedule_write()

    def preferences(self, session: str) -> tuple[str, list[str]] | None:
        """The log level and the subscribed resources of a session."""
        return self._state.standings.get(session)

    def save_preferences(self, session: str, level: str, uris: list[str]) -> None:
        """Remember log level and subscriptions of a session; without any it is removed."""
        known = self._state.standings
        before = known.pop(session, None)
        self._session_bytes.pop(session, None)
        if level or uris:
            # Moved to the end, as the most recently used.
            known[session] = (level, uris)
            self._session_bytes[session] = _size(uris)
            self._evict_sessions()
        if known.get(session) != before:
            self._schedule_write()

    def _evict_sessions(self) -> None:
        """Remove the oldest of too many sessions, and the largest of those that are too large together."""
        sizes = self._session_bytes
        excess = list(self._state.standings)[: max(0, len(self._state.standings) - _MAX_SESSIONS)]
        total = sum(sizes.values()) - sum(sizes[session] for session in excess)
        if total > _MAX_SESSION_BYTES:
            for session in sorted(sizes.keys() - set(excess), key=sizes.__getitem__, reverse=True):
                if total <= _MAX_SESSION_BYTES:
                    break
                total -= sizes[session]
                excess.append(session)
        for session in excess:
            del self._state.standings[session], sizes[session]

    def listing_digest(self, label: str) -> str | None:
        """The digest of that listing when it was last sent."""
        return self._state.listings.get(label)

    def remember_listing(self, label: str, digest: str) -> None:
        known = self._state.listings
        if known.get(label) != digest:
            known.pop(label, None)
            known[label] = digest
            for one in list(known)[: max(0, len(known) - _MAX_LISTINGS)]:
                del known[one]
            self._schedule_write()

    def favourites(self) -> tuple[float, list[tuple[str, str]]]:
        """When the most used tools were determined, and which they are."""
        return self._state.favourites

    def remember_favourites(self, at: float, tools: list[tuple[str, str]]) -> None:
        self._state.favourites = (at, tools)
        self._schedule_write()

    async def flush(self) -> None:
        """Write all changes before this returns."""
        if self._timer is not None:
            # The loop may close before the timer fires.
            self._timer.cancel()
            self._timer = None
        await asyncio.to_thread(self._write, self._changes, msgspec.json.encode(self._state))

    def _schedule_write(self) -> None:
        self._changes += 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # No loop to block.
            self._write(self._changes, msgspec.json.encode(self._state))
            return

        def write_in_thread() -> None:
            self._timer = None
            content = msgspec.json.encode(self._state)
            self._writing = loop.run_in_executor(None, self._write, self._changes, content)

        if self._timer is None:
            self._timer = loop.call_later(self._pause_seconds, write_in_thread)

    def _write(self, change: int, content: bytes) -> None:
        """Write the state after a change, unless a later one was written."""
        with self._lock:
            if change <= self._written:
                return
            # The name has the process id, because another gateway may be writing too.
            fresh = self._path.with_suffix(f".{os.getpid()}.new")
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Readable by its owner alone, because it names subscribed resources.
                with open_regular(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
                    file.write(self._merged_with_file(content))
                os.replace(fresh, self._path)
                self._written, self._known, self._on_disk = change, content, _digest(self._path)
            except OSError as error:
                log.warning("state not written", extra={"path": str(self._path), "reason": str(error)})

    def _merged_with_file(self, content: bytes) -> bytes:
        """The state of this process with what other gateways have written since its last read or write."""
        if _digest(self._path) in (self._on_disk, None):
            return content
        try:
            others = msgspec.json.decode(read_regular(self._path), type=PersistedState)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return content
        before, own = (msgspec.json.decode(text, type=PersistedState) for text in (self._known, content))
        return msgspec.json.encode(
            PersistedState(
                names=_merged_entries(before.names, own.names, others.names, _MAX_NAMES),
                versions=_merged_entries(before.versions, own.versions, others.versions),
                abilities=_merged_entries(before.abilities, own.abilities, others.abilities),
                standings=_merged_entries(before.standings, own.standings, others.standings, _MAX_SESSIONS),
                listings=_merged_entries(before.listings, own.listings, others.listings, _MAX_LISTINGS),
                favourites=others.favourites if own.favourites == before.favourites else own.favourites,
            )
        )


def _merged_entries(
    before: Mapping[str, T], own: Mapping[str, T], others: Mapping[str, T], most: int | None = None
) -> dict[str, T]:
    kept = {key: value for key, value in others.items() if key in own or key not in before}
    kept |= {key: value for key, value in own.items() if before.get(key) != value}
    return dict(list(kept.items())[-most:]) if most is not None else kept


def _digest(path: Path) -> bytes | None:
    """The digest of the file; None when it cannot be read."""
    try:
        return hashlib.blake2b(read_regular(path)).digest()
    except OSError:
        return None


def _size(uris: list[str]) -> int:
    return len(msgspec.json.encode(uris))


def _read(path: Path) -> PersistedState:
    try:
        return msgspec.json.decode(read_regular(path), type=PersistedState)
    except FileNotFoundError:
        return PersistedState()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("state not read", extra={"path": str(path), "reason": str(error)})
        return PersistedState()
