"""Restores the last listings of the servers at start, and saves new ones to the catalog file."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from headgate import __version__
from headgate.catalog.catalog import Catalog
from headgate.catalog.paged_listing import NOTHING_TO_KEEP, CacheHint
from headgate.catalog.stored_listing import places
from headgate.domain.item import ItemKind, UpstreamItem
from headgate.domain.server_spec import ServerSpec
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

_USAGE_INTERVAL_SECONDS = 60.0


class CatalogPersistence:
    """Keeps the file of the catalog up to date."""

    def __init__(self, file: SqliteCatalogStore, catalog: Catalog) -> None:
        self._file = file
        self.catalog = catalog
        self._definitions: dict[str, str] = {}
        # The contents of the file, so that an unchanged listing costs little.
        self._saved: dict[tuple[str, ItemKind], tuple[list[bytes], CacheHint]] = {}
        self._pending_writes: set[asyncio.Future[None]] = set()

    async def restore(self, servers: Iterable[ServerSpec], *, forget: bool = True) -> None:
        """Offer the last listings of unchanged servers; `forget` drops from the file what is long unused."""
        self.set_servers(servers)
        kept = await self._file.load(self._definitions, forget=forget)
        # NOTHING_TO_KEEP is compared by identity, so a loaded one is replaced by it.
        stored = [
            msgspec.structs.replace(one, hint=NOTHING_TO_KEEP) if one.hint == NOTHING_TO_KEEP else one
            for one in kept
        ]
        # Listings that an earlier version checked are written again when the server lists.
        self._saved = {
            (one.server, one.kind): (one.definitions, one.hint) for one in stored if one.is_current
        }
        self.catalog.restore_listings(stored)

    def set_servers(self, servers: Iterable[ServerSpec]) -> None:
        """Stop offering the listings of other servers, and of servers whose definition has changed.

        The file keeps them for a while, because another configuration may have these servers.
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
        """Save a new listing; `sources` are the definitions that the catalog accepted."""
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
        """Save the use of tools every minute; never returns."""
        while True:
            await asyncio.sleep(_USAGE_INTERVAL_SECONDS)
            await self._record_usage()

    async def close(self) -> None:
        await self._record_usage()
        await self._file.flush()

    async def _record_usage(self) -> None:
        used = self.catalog.drain_usage()
        if used:
            await self._file.count_calls(used)


def _server_fingerprint(server: ServerSpec) -> str:
    """A hash, for its secrets, of everything that may change the listing of the server."""
    relevant = (
        # Another version may read a listing in another way.
        __version__,
        server.transport,
        server.command,
        server.args,
        server.env,
        server.inherit_env,
        server.cwd,
        server.url,
        server.headers,
        # A server may list by the certificate of its client.
        server.tls.client_cert,
        server.builtin,
    )
    return hashlib.sha256(msgspec.json.encode(relevant, order="deterministic")).hexdigest()
