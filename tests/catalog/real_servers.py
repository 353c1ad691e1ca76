"""The tools of 98 real servers, as each of them sent them."""

import lzma
from functools import cache
from pathlib import Path

import msgspec

from headgate.catalog.catalog import Catalog
from headgate.domain.item import ItemKind
from tests.catalog.sample_catalog import catalog_of

_FILE = Path(__file__).parents[1] / "data" / "catalogs.jsonl.xz"


class _Listing(msgspec.Struct):
    tools: list[msgspec.Raw]


class _Line(msgspec.Struct):
    server: str
    listing: _Listing


@cache
def real_servers() -> dict[str, list[bytes]]:
    """The definitions of each server, by its name."""
    with lzma.open(_FILE, "rb") as lines:
        read = [msgspec.json.decode(line, type=_Line) for line in lines]
    return {one.server: [bytes(tool) for tool in one.listing.tools] for one in read}


@cache
def real_catalog() -> Catalog:
    """All of them behind one gateway; read only."""
    catalog = catalog_of(*real_servers())
    for server, tools in real_servers().items():
        catalog.replace_listing(server, ItemKind.TOOLS, tools)
    return catalog
