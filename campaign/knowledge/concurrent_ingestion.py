"""Several ingestions at once into one store (K08)."""

import asyncio

from campaign.knowledge.inspection import content, differences, faults
from campaign.knowledge.knowledge_process import Place, file_place, places
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, case
from testkit.embeddings_endpoint import word_embedder


@case(
    "K08",
    "two and four ingestions at once over the same trees, both stores",
    "each file once, as by one ingestion; none waits for ever or fails",
    quick_seconds=150,
    full_seconds=900,
)
async def together(trial: Trial) -> None:
    """They take turns, and the last word is that of the files."""
    with word_embedder() as environment:
        size = trial.size(quick=12, full=150)
        first, second = (
            Shelf(trial.directory / name, size, seed) for seed, name in enumerate(("one", "two"))
        )
        twin = file_place(trial, "twin", environment)
        for place in places(trial, environment):
            for times in (2, 4):
                first.stir(share=0.7)
                second.stir(share=0.7)
                await _at_once(trial, place, times, first, second)
            trees = (str(first.top), str(second.top))
            ended = await place.run("ingest", *trees, "--json")
            left = [ended.document.get(what) for what in ("added", "changed", "removed", "vectors")]
            trial.check(f"{place.kind}: nothing is left to do", left == [0, 0, 0, 0], left)
            await twin.run("ingest", *trees)
            wrong = [*await faults(place), *differences(await content(place), await content(twin))]
            trial.check(f"{place.kind}: as by one ingestion", not wrong, wrong[:3])
            trial.measure(f"{place.kind} differences", len(wrong))


async def _at_once(trial: Trial, place: Place, times: int, first: Shelf, second: Shelf) -> None:
    trees = [(first.top,), (first.top, second.top), (second.top,), (second.top, first.top)]
    runs = await asyncio.gather(
        *(place.run("ingest", *map(str, trees[number]), "--json") for number in range(times))
    )
    failed = [ended.err[-300:] for ended in runs if ended.code != 0]
    longest = max(ended.seconds for ended in runs)
    trial.measure(f"{place.kind}, {times} at once", f"{len(failed)} failed, {longest:.1f} s")
    trial.check(f"{place.kind}, {times} at once: none fails", not failed, failed[:2])
    wrong = await faults(place)
    trial.check(f"{place.kind}, {times} at once: nothing is half", not wrong, wrong[:3])
