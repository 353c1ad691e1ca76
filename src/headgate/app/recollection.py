"""What servers listed the last time: offered again at once, and kept for the next start."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from headgate import __version__
from headgate.catalog.catalog import Catalog
from headgate.catalog.paged_listing import NOTHING_TO_KEEP, CacheHint
from headgate.catalog.stored_listing import StoredListing, places
from headgate.domain.item import Source
from headgate.domain.kind import Kind
from headgate.domain.server import ServerSpec
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

_USAGE_SECONDS = 60.0


class Recollection:
    """Joins the catalog and its file."""

    def __init__(self, file: SqliteCatalogStore, catalog: Catalog) -> None:
        self._file = file
        self.catalog = catalog
        self._definitions: dict[str, str] = {}
        # What the file has, so that a server that tells the same again costs little.
        self._kept: dict[tuple[str, Kind], tuple[list[bytes], CacheHint]] = {}
        self._writing: set[asyncio.Future[None]] = set()

    async def recall(self, servers: Iterable[ServerSpec], *, forget: bool = True) -> None:
        """Offer what these servers listed the last time, as far as they are still defined as they were.

        What no gateway has used for a while is dropped from the file, unless somebody only looks.
        """
        self.apply(servers)
        kept = await self._file.load(self._definitions, forget=forget)
        stored = [_with_known_hint(one) for one in kept]
        # What an earlier version found in them is written anew when the server tells the same again.
        self._kept = {(one.server, one.kind): (one.definitions, one.hint) for one in stored if one.is_current}
        self.catalog.restore_listings(stored)

    def apply(self, servers: Iterable[ServerSpec]) -> None:
        """These are the servers now; others, and what the same were before, are not offered any more.

        The file keeps them for a while: another configuration may have them.
        """
        before = self._definitions
        self._definitions = {server.name: _print(server) for server in servers if server.enabled}
        changed = [name for name, known in before.items() if self._definitions.get(name) != known]
        if changed:
            self._kept = {key: value for key, value in self._kept.items() if key[0] not in changed}
            self.catalog.mark_stale(changed)

    def keep(
        self, server: str, kind: Kind, definitions: list[bytes], hint: CacheHint, sources: Sequence[Source]
    ) -> None:
        """This is what the server lists now, and what could be taken in of it."""
        definition = self._definitions.get(server)
        if definition is None:
            return
        if self._kept.get((server, kind)) != (definitions, hint):
            self._kept[server, kind] = (definitions, hint)
            known = places(definitions, sources)
            self._write(self._file.keep(server, definition, kind, definitions, hint, known))
        elif kind is Kind.TOOLS:
            self._write(self._file.see(server, definition))

    def _write(self, written: "asyncio.Future[None]") -> None:
        self._writing.add(written)
        written.add_done_callback(self._writing.discard)

    async def count(self) -> None:
        """Note from time to time how often tools were called."""
        while True:
            await asyncio.sleep(_USAGE_SECONDS)
            await self._note_usage()

    async def close(self) -> None:
        """Write what is still to be written."""
        await self._note_usage()
        await self._file.flush()

    async def _note_usage(self) -> None:
        used = self.catalog.drain_usage()
        if used:
            await self._file.count_calls(used)


def _with_known_hint(stored: StoredListing) -> StoredListing:
    """That there is nothing to keep is known by its identity."""
    if stored.hint != NOTHING_TO_KEEP:
        return stored
    return msgspec.structs.replace(stored, hint=NOTHING_TO_KEEP)


def _print(server: ServerSpec) -> str:
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
