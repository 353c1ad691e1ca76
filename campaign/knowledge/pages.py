"""Pages are turned while another process adds, changes and removes documents (K04)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from campaign.knowledge.knowledge_gateway import Opened, opened
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, case
from testkit.embeddings_endpoint import word_embedder

Answer = dict[str, Any]
_PAGE_SIZE = 7


@dataclass(frozen=True, slots=True)
class _Walk:
    """A list that is read page by page; `ids` are those of one page."""

    name: str
    tool: str
    arguments: dict[str, Any]
    ids: Callable[[Answer], list[str]]


def _chunks(answer: Answer) -> list[str]:
    return [f"chunk {one['chunk_id']}" for one in answer["results"]]


def _vendor(answer: Answer) -> list[str]:
    # The vendor stands on each page.
    own = answer.get("vendor_id", 0)
    entities = [f"entity {id}" for id in answer["entity_ids"] if id != own]
    return entities + [f"relationship {id}" for id in answer["relationship_ids"]]


def _sources(answer: Answer) -> list[str]:
    return [f"source {one['source_file']}" for one in answer["sources"]]


_QUERY = {"query": "invoices and clause", "response_mode": "ids_only"}
_WALKS = (
    _Walk("hybrid", "semantic_search", _QUERY, _chunks),
    _Walk("bm25", "semantic_search", _QUERY | {"strategy": "bm25"}, _chunks),
    _Walk("vector", "semantic_search", _QUERY | {"strategy": "vector"}, _chunks),
    _Walk("full", "semantic_search", _QUERY | {"response_mode": "full"}, _chunks),
    _Walk(
        "vendor",
        "find_vendor_info",
        {"vendor_name": "Acme Corporation", "response_mode": "ids_only"},
        _vendor,
    ),
    _Walk("sources", "list_sources", {}, _sources),
)


@case(
    "K04",
    "paging while documents are added, changed and removed by another process, both stores",
    "0 repeats; of the start nothing is missing unless it was removed",
    quick_seconds=150,
    full_seconds=900,
)
async def pages_turned(trial: Trial) -> None:
    """A walk through the pages is a walk through one list."""
    counts: Counter[str] = Counter()
    with word_embedder() as environment:
        for database in (False, True):
            async with opened(trial, database=database, environment=environment) as here:
                shelf = Shelf(trial.directory / f"shelf{int(database)}", trial.size(quick=30, full=150))
                await here.place.run("ingest", str(shelf.top))
                for _ in range(trial.size(quick=2, full=12)):
                    await _round(trial, here, shelf, counts)
    for name, count in counts.items():
        trial.measure(name, count)
    trial.measure("repeats", counts["repeats"])
    trial.check("there were pages", counts["pages"] > 20, counts["pages"])


async def _round(trial: Trial, here: Opened, shelf: Shelf, counts: Counter[str]) -> None:
    wholes = [await _walked(here, walk, 50) for walk in _WALKS]
    ingestion = asyncio.Event()
    slow = [asyncio.create_task(_walked(here, walk, _PAGE_SIZE, ingestion)) for walk in _WALKS]
    # The first pages are read before anything changes.
    await asyncio.sleep(0.3)
    shelf.stir(share=0.4)
    ended = await here.place.run("ingest", str(shelf.top), "--json")
    trial.check("the ingestion ends well", ended.code == 0, ended.err)
    ingestion.set()
    left = await _left(here)
    for walk, whole, pages in zip(_WALKS, wholes, await asyncio.gather(*slow), strict=True):
        what = f"{here.place.kind} {walk.name}"
        counts["pages"] += len(pages)
        flat, start = [id for page in pages for id in page], {id for page in whole for id in page}
        repeats = [id for id, times in Counter(flat).items() if times > 1]
        counts["repeats"] += len(repeats)
        trial.check(f"{what}: no repeats", not repeats, repeats[:5])
        new = set(flat) - start
        trial.check(f"{what}: nothing that came later", not new, sorted(new)[:5])
        missing = start - set(flat)
        counts["removed meanwhile"] += len(missing)
        lost = [id for id in missing if id in left]
        trial.check(f"{what}: nothing is missing", not lost, lost[:5])


async def _walked(
    here: Opened, walk: _Walk, page_size: int, pause: asyncio.Event | None = None
) -> list[list[str]]:
    """The ids of each page; with a pause, which ends when it is set, between all of them."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await here.told(walk.tool, page_size=page_size, **walk.arguments, **cursor)
        pages.append(walk.ids(answer))
        following = answer["pagination"]["cursor"]
        if not answer["pagination"]["has_more"]:
            return pages
        cursor = {"cursor": following}
        if pause is not None:
            # A page every now and then, and the last ones after everything has changed.
            await asyncio.wait([asyncio.create_task(pause.wait())], timeout=0.4)


async def _left(here: Opened) -> set[str]:
    """All that is in the store now."""
    async with here.place.open() as store:
        found = {f"chunk {one.id}" async for one in store.iter_chunks()}
        found |= {f"source {one.file}" async for one in store.iter_sources()}
        found |= {f"entity {one.id}" async for one in store.iter_entities()}
        return found | {f"relationship {one.id}" async for one in store.iter_relationships()}
