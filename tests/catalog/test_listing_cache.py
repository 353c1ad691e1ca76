"""Listings are built one at a time, even when the clients that asked for them leave."""

import asyncio
import threading

import pytest

from headgate.catalog.expand_schema import ExpandableTools
from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.paged_listing import CacheHint
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, Visibility
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from tests.access.granted import GrantedVisibility
from tests.catalog.sample_catalog import catalog_of, tool
from tests.catalog.sample_listings import (
    ONE,
    listed_by,
    request_of,
    session,
    stateless,
    tool_listings_of,
    wordy,
)


class BlockedCounter:
    """Counts tokens once it is opened, and knows how many threads wait for it at most."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = threading.Event()
        self._lock = threading.Lock()
        self._inside = 0
        self.most_inside = 0

    def count(self, text: bytes) -> int:
        with self._lock:
            self._inside += 1
            self.most_inside = max(self.most_inside, self._inside)
        self.begun.set()
        assert self.opened.wait(10)
        with self._lock:
            self._inside -= 1
        return count_tokens(text)


async def test_clients_that_leave_do_not_make_others_begin_anew() -> None:
    counter, catalog = BlockedCounter(), catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [wordy(f"t{number}") for number in range(30)])
    tool_listings = tool_listings_of(ListingMode.BUDGET, catalog, count=counter.count)
    for number in range(4):
        listing = asyncio.create_task(listed_by(tool_listings, session(f"client{number}")))
        assert await asyncio.to_thread(counter.begun.wait, 10)
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    # Another listing variant waits for its turn.
    others = [asyncio.create_task(listed_by(tool_listings, one)) for one in (ONE, stateless("ann"))]
    await asyncio.sleep(0)
    counter.opened.set()
    one, ann = await asyncio.gather(*others)
    assert one == ann
    assert counter.most_inside == 1
    tool_listings.close()


# Who may keep a listing.

PUBLIC = CacheHint(60_000, public=True)


@pytest.mark.parametrize(
    ("client", "mode", "public"),
    [
        ("", None, True),
        ("anybody", None, True),
        ("bot", None, False),
        ("gem", None, False),
        ("", ListingMode.SLIM, False),
    ],
)
def test_only_what_everybody_sees_may_be_shown_to_others(
    client: str, mode: ListingMode | None, *, public: bool
) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")], hint=PUBLIC)
    clients = KnownClients({"bot": ListingMode.SEARCH}, {"gem": Dialect.GEMINI})
    hint = tool_listings_of(ListingMode.FULL, catalog, clients=clients).cache_hint(
        ItemKind.TOOLS, session("one", client=client, mode=mode)
    )
    assert (hint.ttl_ms, hint.public) == (60_000, public)


# Which clients are pointed to search, and who may expand what.


@pytest.mark.parametrize("mode", ListingMode)
async def test_only_who_is_shown_what_finds_tools_is_told_of_it(mode: ListingMode) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    tool_listings = tool_listings_of(mode, catalog)
    names = [one["name"] for one in await listed_by(tool_listings)]
    assert tool_listings.lists_search_tool(request_of(ONE)) == ("retrieve_tools" in names)


def only_ann(identity: Identity) -> Visibility:
    """Shows tools to Ann alone."""
    return EVERYTHING if identity.principal == "ann" else GrantedVisibility(())


def test_what_a_caller_may_not_see_cannot_be_expanded() -> None:
    catalog = catalog_of("s", visible=only_ann)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    tools = ExpandableTools(catalog)
    assert tools.find("s_a", Identity(principal="ann"), PLAIN_PROFILE) is not None
    assert tools.find("s_a", LOCAL_IDENTITY, PLAIN_PROFILE) is None
    assert tools.find("call_tool", LOCAL_IDENTITY, PLAIN_PROFILE) is not None
