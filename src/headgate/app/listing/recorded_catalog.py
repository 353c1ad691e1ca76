"""What a gateway remembers of tools, names and use, read and never written: looking must change nothing."""

import asyncio
from collections.abc import Mapping

from headgate.app.catalog_persistence import CatalogPersistence
from headgate.catalog.catalog import Catalog
from headgate.catalog.public_names import Key, default_limit
from headgate.catalog.tool_pool import MostUsedTools
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import everything_visible
from headgate.storage.files.state_file import StateFile
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore


class RecordedCatalog:
    """The tools as a gateway with these settings would show them, and which of them are used most."""

    def __init__(
        self, catalog: Catalog, hidden: list[Key], unknown: list[str], ranks: Mapping[Key, int]
    ) -> None:
        self.catalog = catalog
        self.hidden = hidden
        # The servers of which nothing is remembered.
        self.unknown = unknown
        self.ranks = ranks


async def load_recorded_catalog(settings: Settings) -> RecordedCatalog:
    """From the files of the data directory; what is not there is not known."""
    notes = _ReadOnlyState(await asyncio.to_thread(StateFile, settings.data_dir / "state.json"))
    catalog = Catalog(
        name_limit=settings.tool_name_limit or default_limit(settings.name),
        prefixed=settings.prefix,
        page_bytes=settings.page_bytes,
        owners=notes,
        visible=everything_visible,
        truncates=settings.enable_auto_truncation,
    )
    enabled = [server.name for server in settings.servers if server.enabled]
    catalog.set_servers(enabled, [server.name for server in settings.servers if not server.enabled])
    file = SqliteCatalogStore(settings.data_dir / "proxy.db")
    catalog_persistence = CatalogPersistence(file, catalog)
    try:
        await catalog_persistence.restore(settings.servers, forget=False)
        usage = await file.usage()
    finally:
        await catalog_persistence.close()
    every = [(item.server, item.name) for item in catalog.every_tool]
    # A tool that is hidden must not take a name from another one.
    notes.forget()
    catalog.curate({server.name: server.curation for server in settings.servers})
    return RecordedCatalog(
        catalog,
        [key for key in every if not catalog.has(key)],
        [name for name in enabled if not catalog.has_own_listing(name, PLAIN_PROFILE)],
        _ranks(notes, usage),
    )


def _ranks(notes: "_ReadOnlyState", usage: Mapping[Key, int]) -> Mapping[Key, int]:
    favourites = MostUsedTools(notes)
    if favourites.is_due:
        # As a gateway does that is started now.
        favourites.update(usage)
    return favourites.ranks


class _ReadOnlyState:
    """Whose a name is, and what was used most; what is noted is gone with this process."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._claims: dict[str, Key] = {}

    def owner(self, public_name: str) -> Key | None:
        """The server and the item that had the name first."""
        return self._claims.get(public_name) or self._state.owner(public_name)

    def claim(self, names: Mapping[str, Key]) -> None:
        """These names have owners now."""
        self._claims.update(names)

    def forget(self) -> None:
        """Whatever was claimed since the beginning."""
        self._claims.clear()

    def favourites(self) -> tuple[float, list[Key]]:
        """When the most used tools were taken down, and which they are."""
        return self._state.favourites()

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        """Nothing is kept."""
