"""The hint for reading a stored result fits the tools that the client sees."""

from pathlib import Path
from typing import Any

import pytest

from headgate.app.stored_results import listed_result_tools
from headgate.app.tool_search import ToolSearch
from headgate.catalog.catalog import Catalog
from headgate.catalog.finder import Finder
from headgate.config.settings import Settings
from headgate.domain.identity import everything_visible
from headgate.domain.item import ItemKind
from headgate.storage.files.state_file import StateFile
from tests.catalog.sample_listings import ONE, listed_by, request_of, wordy

FEW, MANY = 2, 200


async def listed(tmp_path: Path, number: int, **more: Any) -> tuple[set[str], bool]:
    """Return which of the two ways are on the list, and whether the client is to call by name."""
    settings = Settings(data_dir=tmp_path, **more)
    state = StateFile(tmp_path / "state.json")
    catalog = Catalog(
        name_limit=60,
        prefixed=True,
        page_bytes=settings.page_bytes,
        visible=everything_visible,
        owners=state,
        readers=listed_result_tools(settings),
    )
    search = ToolSearch(settings, catalog, Finder(lambda: catalog.every_tool), state)
    catalog.set_servers(("bank",))
    catalog.replace_listing("bank", ItemKind.TOOLS, [wordy(f"pay{one}") for one in range(number)])
    try:
        names = {tool["name"] for tool in await listed_by(search.tool_listings)}
        return names & {"proxy_read", "call_tool"}, search.reads_results_by_name(request_of(ONE))
    finally:
        search.tool_listings.close()
        await search.finder.close()


@pytest.mark.parametrize(
    ("listing", "number", "budget", "expected"),
    [
        ("full", MANY, 3000, ({"proxy_read"}, True)),
        ("slim", MANY, 3000, ({"proxy_read"}, True)),
        ("dynamic", MANY, 3000, ({"proxy_read"}, True)),
        ("auto", MANY, 3000, ({"proxy_read", "call_tool"}, True)),
        ("search", MANY, 3000, ({"call_tool"}, False)),
        ("budget", MANY, 500, ({"call_tool"}, False)),
        ("budget", FEW, 500, (set(), True)),
    ],
)
async def test_by_call_tool_where_that_is_listed_and_they_are_not(
    tmp_path: Path, listing: str, number: int, budget: int, expected: tuple[set[str], bool]
) -> None:
    found = await listed(tmp_path, number, listing=listing, listing_budget_tokens=budget)
    assert found == expected


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("full", (set(), True)),
        ("slim", (set(), True)),
        ("dynamic", (set(), True)),
        ("auto", ({"call_tool"}, False)),
        ("search", ({"call_tool"}, False)),
    ],
)
async def test_where_the_settings_list_none_of_them_it_is_the_same(
    tmp_path: Path, listing: str, expected: tuple[set[str], bool]
) -> None:
    assert await listed(tmp_path, MANY, listing=listing, list_result_tools=False) == expected
