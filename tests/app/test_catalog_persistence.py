"""What servers list is kept for the next start, with when each tool was first and last seen."""

import asyncio
import sqlite3
from pathlib import Path

from headgate.app.catalog_persistence import CatalogPersistence
from headgate.catalog.paged_listing import NO_HINT
from headgate.domain.item import ItemKind
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore
from tests.catalog.sample_catalog import called, catalog_of, tool

SERVER = ServerSpec(name="s", transport=TransportType.STDIO, command="serve")
TOOLS = [tool("a"), tool("b")]


async def told(path: Path, now: float, server: ServerSpec = SERVER) -> list[str]:
    """One life of a gateway in which the server tells the same; what was listed before it did."""
    catalog = catalog_of("s")
    catalog_persistence = CatalogPersistence(SqliteCatalogStore(path, lambda: now), catalog)
    await catalog_persistence.restore([server])
    before = called(catalog, ItemKind.TOOLS)
    intake = catalog.replace_listing("s", ItemKind.TOOLS, TOOLS)
    catalog_persistence.save_listing("s", ItemKind.TOOLS, TOOLS, NO_HINT, intake.sources)
    await catalog_persistence.close()
    return before


def seen(path: Path) -> list[tuple[str, float, float]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT name, first_seen, last_seen FROM tools ORDER BY name").fetchall()


async def test_a_tool_that_is_told_again_was_seen_now_and_first_seen_then(tmp_path: Path) -> None:
    path = tmp_path / "proxy.db"
    assert await told(path, 1000.0) == []
    assert await told(path, 2000.0) == ["s_a", "s_b"]
    assert await asyncio.to_thread(seen, path) == [("a", 1000.0, 2000.0), ("b", 1000.0, 2000.0)]


async def test_how_long_a_server_may_take_does_not_make_it_another(tmp_path: Path) -> None:
    path = tmp_path / "proxy.db"
    await told(path, 1000.0)
    slower = ServerSpec(name="s", transport=TransportType.STDIO, command="serve", timeout_seconds=5.0)
    other = ServerSpec(name="s", transport=TransportType.STDIO, command="serve", args=("--all",))
    assert await told(path, 2000.0, slower) == ["s_a", "s_b"]
    assert await told(path, 3000.0, other) == []
