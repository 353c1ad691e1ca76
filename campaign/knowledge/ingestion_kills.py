"""An ingestion is killed at random moments (K01, K02)."""

import asyncio
import random
import time

from campaign.knowledge.inspection import content, differences, faults, revisions, stored_editions
from campaign.knowledge.knowledge_process import Place, database_place, file_place
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, case
from testkit.embeddings_endpoint import word_embedder

_MUST_HOLD = "each document whole, old or new; scores as of a store made at once; the end as without kills"
_NEVER = 1_000_000
_LONGEST_SECONDS = 60.0


@case(
    "K01",
    "kill -9 of an ingestion at random moments, SQLite",
    _MUST_HOLD,
    quick_seconds=150,
    full_seconds=1800,
)
async def killed_beside_a_file(trial: Trial) -> None:
    """Whatever moment it dies at, the file is whole."""
    with word_embedder() as environment:
        await _kill_often(
            trial, file_place(trial, environment=environment), file_place(trial, "twin", environment)
        )


@case(
    "K02",
    "kill -9 of an ingestion at random moments, PostgreSQL",
    _MUST_HOLD,
    quick_seconds=150,
    full_seconds=1800,
)
async def killed_beside_a_database(trial: Trial) -> None:
    """Whatever moment it dies at, the database is whole."""
    with word_embedder() as environment:
        await _kill_often(
            trial, database_place(trial, environment=environment), database_place(trial, "twin", environment)
        )


async def _kill_often(trial: Trial, place: Place, twin: Place) -> None:
    kills, dice = trial.size(quick=8, full=60), random.Random(7)
    shelf = Shelf(trial.directory / "shelf", trial.size(quick=30, full=120))
    first = await place.run("ingest", str(shelf.top), "--json")
    trial.check("the first ingestion ends well", first.code == 0, first.err)
    known, amid, done, broken = await stored_editions(place), 0, 0, 0
    longest = first.seconds
    for kill in range(kills):
        # Most of the time the last run has left work, too: the same documents are looked at again.
        shelf.stir(share=0.6)
        # Half of them die at any time, and half amid what they store.
        steps = dice.randrange(1, len(shelf.editions)) if kill % 2 else _NEVER
        ended = await _killed(place, shelf, dice.uniform(0.1, 1.1) * longest, steps)
        wrong = await faults(place)
        trial.check(f"kill {kill}: nothing is half", not wrong, wrong[:3])
        now = await stored_editions(place)
        wrong = _gone_astray(known, now, shelf)
        trial.check(f"kill {kill}: every document is old or new", not wrong, wrong[:3])
        new = sum(now.get(file) == edition for file, edition in shelf.files().items())
        changed = sum(now.get(file) != known.get(file) for file in now.keys() | known.keys())
        amid += changed > 0 and new < len(shelf.files())
        broken += not ended
        done += ended
        known = now
    last = await place.run("ingest", str(shelf.top), "--json")
    trial.check("one more run ends well", last.code == 0 and not last.document.get("failed"), last.err)
    await twin.run("ingest", str(shelf.top), "--json")
    wrong = [*await faults(place), *differences(await content(place), await content(twin))]
    trial.measure("kills", broken)
    trial.measure("amid the documents", amid)
    trial.measure("ended before the kill", done)
    trial.measure("documents", len(shelf.files()))
    trial.measure("vectors", str((await content(place))["vectors"]))
    trial.measure("one more run", last.seconds, "s")
    trial.measure("differences from a store without kills", len(wrong))
    trial.check("some were killed", broken > 0, broken)
    trial.check("the store is as one made without kills", not wrong, wrong[:3])


async def _killed(place: Place, shelf: Shelf, seconds: float, steps: int) -> bool:
    """Whether it ended before it was killed: after these seconds, or once it has stored these steps."""
    with revisions(place) as revision:
        last = revision() + steps
        async with place.started("ingest", str(shelf.top), "--json") as child:
            talk = asyncio.create_task(child.communicate())
            until = time.monotonic() + (seconds if steps == _NEVER else _LONGEST_SECONDS)
            while not talk.done() and time.monotonic() < until and revision() < last:
                await asyncio.wait([talk], timeout=0.002)
            ended = talk.done()
            if not ended:
                child.kill()
            await talk
            return ended


def _gone_astray(before: dict[str, int], now: dict[str, int], shelf: Shelf) -> list[str]:
    """Documents in an edition that is neither the one before nor the one that is there."""
    there = shelf.files()
    wrong = [
        f"{file} is of edition {edition}, was {before.get(file)}, is {there.get(file)} there"
        for file, edition in now.items()
        if edition not in (before.get(file), there.get(file))
    ]
    return wrong + [f"{file} is lost" for file in before.keys() & there.keys() if file not in now]
