"""tools/list comes in pages of bounded size that together are the whole, in order."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.paged_listing import InvalidCursor
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import called, catalog_of, first_page, item, tool

PAGE_BYTES = 4096
VIEWER = ListingContext(era=Era.HANDSHAKE)


def pages(catalog: Catalog) -> Iterator[tuple[bytes, dict[str, Any]]]:
    cursor: str | None = None
    while True:
        members = catalog.listing(ItemKind.TOOLS, VIEWER).page(cursor)
        page = json.loads(b"{" + members + b"}")
        yield members, page
        cursor = page.get("nextCursor")
        if cursor is None:
            return


def names(catalog: Catalog) -> list[str]:
    return [listed["name"] for _, page in pages(catalog) for listed in page["tools"]]


@given(st.lists(st.integers(0, 2 * PAGE_BYTES), max_size=40))
def test_the_pages_are_the_whole_in_order_and_each_is_small(sizes: list[int]) -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    catalog.replace_listing(
        "s", ItemKind.TOOLS, [tool(f"t{number}", "x" * size) for number, size in enumerate(sizes)]
    )
    assert names(catalog) == [f"s_t{number}" for number in range(len(sizes))]
    for members, page in pages(catalog):
        assert len(members) <= PAGE_BYTES + 200 or len(page["tools"]) == 1
        assert page["tools"] or not sizes


def test_pages_are_filled() -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool(f"t{number}", "x" * 100) for number in range(200)])
    sizes = [len(members) for members, _ in pages(catalog)]
    assert all(size > PAGE_BYTES // 2 for size in sizes[:-1])


def test_the_same_question_gets_the_same_bytes() -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool(f"t{number}", "x" * 300) for number in range(50)])
    assert [members for members, _ in pages(catalog)] == [members for members, _ in pages(catalog)]


def test_a_cursor_survives_a_change_elsewhere() -> None:
    catalog = catalog_of("s", "later", page_bytes=PAGE_BYTES)
    everything = [tool(f"t{number}", "x" * 300) for number in range(30)]
    catalog.replace_listing("s", ItemKind.TOOLS, everything)
    first = json.loads(b"{" + first_page(catalog) + b"}")
    last_seen = first["tools"][-1]["name"]
    catalog.replace_listing("later", ItemKind.TOOLS, [tool("new")])
    catalog.replace_listing("s", ItemKind.TOOLS, [everything[0], *everything[2:]])
    rest = json.loads(b"{" + catalog.listing(ItemKind.TOOLS, VIEWER).page(first["nextCursor"]) + b"}")
    following = names(catalog)
    assert rest["tools"][0]["name"] == following[following.index(last_seen) + 1]


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "bm9ib2R5", "é", "\udcff", "AAAA" * 10_000, "/w=="])
def test_a_cursor_that_nobody_gave_is_refused(cursor: str) -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool(f"t{number}", "x" * 300) for number in range(30)])
    with pytest.raises(InvalidCursor):
        catalog.listing(ItemKind.TOOLS, VIEWER).page(cursor)


def test_a_cursor_whose_tool_is_gone_is_refused() -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    everything = [tool(f"t{number}", "x" * 300) for number in range(30)]
    catalog.replace_listing("s", ItemKind.TOOLS, everything)
    first = json.loads(b"{" + first_page(catalog) + b"}")
    catalog.replace_listing("s", ItemKind.TOOLS, everything[:2])
    with pytest.raises(InvalidCursor):
        catalog.listing(ItemKind.TOOLS, VIEWER).page(first["nextCursor"])


def test_an_empty_catalog_has_one_empty_page() -> None:
    assert first_page(catalog_of()) == b'"tools":[]'


@pytest.mark.parametrize("kind", ItemKind)
def test_every_kind_comes_in_pages(kind: ItemKind) -> None:
    catalog = catalog_of("s", page_bytes=PAGE_BYTES)
    # Longer than any cursor should be.
    uris = [f"x://{'y' * 300}/{number}" for number in range(60)]
    catalog.replace_listing("s", kind, [item(kind, uri) for uri in uris])
    first = json.loads(b"{" + first_page(catalog, kind) + b"}")
    assert len(first["nextCursor"]) < 500
    assert len(first[kind.result_member]) < 60
    assert len(called(catalog, kind)) == 60
    # The cursor is still good when something else has changed.
    catalog.replace_listing("s", kind, [item(kind, uri) for uri in uris[1:]])
    rest = json.loads(b"{" + catalog.listing(kind, VIEWER).page(first["nextCursor"]) + b"}")
    assert rest[kind.result_member][0][kind.key] == called(catalog, kind)[len(first[kind.result_member]) - 1]
    assert first_page(catalog_of(), kind) == f'"{kind.result_member}":[]'.encode()
