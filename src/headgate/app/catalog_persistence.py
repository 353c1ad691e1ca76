"""Restores the last listings of the servers at start, and saves new ones to the catalog file."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from headgate import __version__
from headgate.catalog.catalog import Catalog
from headgate.catalog.paged_listing import NOTHING_TO_KEEP, CacheHint
from headgate.catalog.stored_listing import StoredListing, places
from headgate.domain.item import ItemKind, UpstreamItem
from headgate.domain.server_spec import ServerSpec
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

_USAGE_INTERVAL_SECONDS = 60.0


class CatalogPersistence:
    """Joins the catalog and its file."""

    def __init__(self, file: SqliteCatalogStore, catalog: Catalog) -> None:
        self._file = file
        self.catalog = catalog
        self._definitions: dict[str, str] = {}
        # What the file has, so that a server that tells the same again costs little.
        self._saved: dict[tuple[str, ItemKind], tuple[list[bytes], CacheHint]] = {}
        self._pending_writes: set[asyncio.Future[None]] = set()

    async def restore(self, servers: Iterable[ServerSpec], *, forget: bool = True) -> None:
        """Offer what these servers listed the last time, as far as they are still defined as they were.

        What no gateway has used for a while is dropped from the file, unless somebody only looks.
        """
        self.set_servers(servers)
        kept = await self._file.load(self._definitions, forget=forget)
        stored = [_with_known_hint(one) for one in kept]
        # What an earlier version found in them is written anew when the server tells the same again.
        self._saved = {
            (one.server, one.kind): (one.definitions, one.hint) for one in stored if one.is_current
        }
        self.catalog.restore_listings(stored)

    def set_servers(self, servers: Iterable[ServerSpec]) -> None:
        """These are the servers now; others, and what the same were before, are not offered any more.

        The file keeps them for a while: another configuration may have them.
        """
        before = self._definitions
        self._definitions = {server.name: _server_fingerprint(server) for server in servers if server.enabled}
        changed = [name for name, known in before.items() if self._definitions.get(name) != known]
        if changed:
            self._saved = {key: value for key, value in self._saved.items() if key[0] not in changed}
            self.catalog.mark_stale(changed)

    def save_listing(
        self,
        server: str,
        kind: ItemKind,
        definitions: list[bytes],
        hint: CacheHint,
        sources: Sequence[UpstreamItem],
    ) -> None:
        """This is what the server lists now, and what could be taken in of it."""
        definition = self._definitions.get(server)
        if definition is None:
            return
        if self._saved.get((server, kind)) != (definitions, hint):
            self._saved[server, kind] = (definitions, hint)
            known = places(definitions, sources)
            self._write(self._file.keep(server, definition, kind, definitions, hint, known))
        elif kind is ItemKind.TOOLS:
            self._write(self._file.see(server, definition))

    def _write(self, written: "asyncio.Future[None]") -> None:
        self._pending_writes.add(written)
        written.add_done_callback(self._pending_writes.discard)

    async def record_usage_periodically(self) -> None:
        """Note from time to time how often tools were called."""
        while True:
            await asyncio.sleep(_USAGE_INTERVAL_SECONDS)
            await self._record_usage()

    async def close(self) -> None:
        """Write what is still to be written."""
        await self._record_usage()
        await self._file.flush()

    async def _record_usage(self) -> None:
        used = self.catalog.drain_usage()
        if used:
            await self._file.count_calls(used)


def _with_known_hint(stored: StoredListing) -> StoredListing:
    """That there is nothing to keep is known by its identity."""
    if stored.hint != NOTHING_TO_KEEP:
        return stored
    return msgspec.structs.replace(stored, hint=NOTHING_TO_KEEP)


def _server_fingerprint(server: ServerSpec) -> str:
    """Of what makes it the server that it is; how long it may take and the like do not.

    A hash, because the definition may hold secrets.
    """
    told = (
        # Another version may take in a listing in another way.
        __version__,
        server.transport,
        server.command,
        server.args,
        server.env,
        server.inherit_env,
        server.cwd,
        server.url,
        server.headers,
        # Who the gateway is for the server may decide what it lists.
        server.tls.client_cert,
        server.builtin,
    )
    return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()
