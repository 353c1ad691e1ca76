"""What it takes to keep every tool in few words beside its definition: memory with 25, 50 and 100 servers."""

import sys
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, drawn, every_catalogue
from headgate.catalog.public_names import public_name
from headgate.catalog.tool_forms import ToolForms
from headgate.domain.item import Item, ItemKind

SERVERS: Final = (25, 50, 100)
_NAME_LIMIT: Final = 60


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The forms of the tools of so many real servers, in a process of their own."""

    servers: int
    tools: int
    definitions_mib: float
    # The bytes of all forms, and everything that is held for them.
    forms_mib: float
    held_mib: float
    # CPU to make them.
    made_seconds: float


def kept(counts: Sequence[int] = SERVERS) -> list[Kept]:
    """So many servers, one number after the other."""
    print("bench: listing, memory of the forms", file=sys.stderr, flush=True)
    found = []
    for count in counts:
        # What one run leaves in memory is not to be counted in the next.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found.append(process.submit(measure, count).result())
    return found


def measure(count: int) -> Kept:
    """Measure in this process."""
    items = [item for one in drawn(every_catalogue(), count) for item in _items(one)]
    # Once to see how long it takes, and once to see what it holds: being watched makes it slow.
    began = time.process_time()
    ToolForms().reduced(items)
    made = time.process_time() - began
    tracemalloc.start()
    words = ToolForms()
    worded = words.reduced(items)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    forms = [form for one in worded.values() for form in (*one.slims.values(), *one.stubs.values())]
    return Kept(
        servers=count,
        tools=len(items),
        definitions_mib=sum(len(item.definition) for item in items) / 2**20,
        forms_mib=sum(map(len, forms)) / 2**20,
        held_mib=held / 2**20,
        made_seconds=made,
    )


def _items(catalogue: Catalogue) -> list[Item]:
    names = (msgspec.json.decode(one, type=_Named).name for one in catalogue.tools)
    return [
        Item(
            ItemKind.TOOLS,
            catalogue.server,
            name,
            public_name(catalogue.server, name, _NAME_LIMIT),
            definition,
        )
        for name, definition in zip(names, catalogue.tools, strict=True)
    ]


class _Named(msgspec.Struct):
    name: str
