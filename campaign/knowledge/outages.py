"""PostgreSQL is killed while it is searched and written to (K03)."""

import asyncio
from collections import Counter

from campaign.knowledge.inspection import faults, stored_editions
from campaign.knowledge.knowledge_gateway import AWAY, Opened, opened, told_once
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, case
from testkit.embeddings_endpoint import word_embedder
from testkit.postgres import server
from testkit.waiting import eventually

_CALLERS = 4
# Of one call: the longest wait for an unavailable database.
_LONGEST_SECONDS = 10.0


@case(
    "K03",
    "kill -9 of PostgreSQL amid searches and an ingestion, and its restart",
    "agents get `Database unavailable, retry in 5s`, operators the reason; then all works, nothing half",
    quick_seconds=120,
    full_seconds=900,
)
async def database_killed(trial: Trial) -> None:
    """Clients get an error that says to wait, and no restart is needed."""
    with word_embedder() as environment:
        async with opened(trial, database=True, environment=environment) as here:
            shelf = Shelf(trial.directory / "shelf", trial.size(quick=25, full=100))
            await here.place.run("ingest", str(shelf.top))
            searching = _Searching(here)
            tasks = [asyncio.create_task(searching.run()) for _ in range(_CALLERS)]
            try:
                back = [
                    await _outage(trial, here, shelf, searching) for _ in range(trial.size(quick=2, full=15))
                ]
            finally:
                searching.over = True
                server().start()
                await asyncio.gather(*tasks)
            last = await here.place.run("ingest", str(shelf.top), "--json")
            trial.check("the last ingestion ends well", last.code == 0, last.err)
            wrong = await faults(here.place)
            wrong += [] if await stored_editions(here.place) == shelf.files() else ["documents are missing"]
            trial.check("nothing is half", not wrong, wrong[:3])
            _tell(trial, searching, back)


class _Searching:
    """Searches again and again, and counts the answers."""

    def __init__(self, here: Opened) -> None:
        self.over = False
        self.told: Counter[str] = Counter()
        self.longest = 0.0
        self._here = here

    async def run(self) -> None:
        strategies = ("hybrid", "bm25", "vector")
        number = 0
        while not self.over:
            number += 1
            words = f"invoices and clause {number}"
            answer = await self._here.ask("semantic_search", query=words, strategy=strategies[number % 3])
            said = answer.text if answer.failure else answer.outcome
            self.told[said if not answer.ok else "ok"] += 1
            self.longest = max(self.longest, answer.seconds)
            await asyncio.sleep(0.02)


async def _outage(trial: Trial, here: Opened, shelf: Shelf, searching: _Searching) -> float:
    """Kill it amid an ingestion, look, start it; gives the seconds until it is searched again."""
    shelf.stir(share=0.8)
    before = searching.told["ok"]
    await eventually(lambda: searching.told["ok"] > before, 30, "a search to be answered")
    async with here.place.started("ingest", str(shelf.top)) as child:
        talk = asyncio.create_task(child.communicate())
        await asyncio.wait([talk], timeout=1.5)
        killed = server().kill()
        _, err = await talk
    trial.check("there was a server", killed > 1, killed)
    said = err.decode(errors="replace")
    trial.check("the ingestion was done, or said so", child.returncode == 0 or told_once(said), said[-600:])
    fresh = await here.place.run("stats")
    trial.check("a command says so", fresh.code == 2 and told_once(fresh.err), fresh.err[-600:])
    server().start()
    told = searching.told["ok"]
    return await eventually(lambda: searching.told["ok"] > told, 30, "searches to work again")


def _tell(trial: Trial, searching: _Searching, back: list[float]) -> None:
    trial.measure("outages", len(back))
    trial.measure("searches", searching.told["ok"])
    trial.measure("refused", sum(searching.told.values()) - searching.told["ok"])
    trial.measure("back after", max(back), "s at most")
    trial.measure("longest answer", searching.longest, "s")
    others = searching.told.keys() - {"ok", AWAY}
    trial.check("only the sentence of the specification", not others, sorted(others)[:3])
    trial.check("some searches were refused", searching.told[AWAY] > 0)
    trial.check(f"no answer after more than {_LONGEST_SECONDS:g} s", searching.longest < _LONGEST_SECONDS)
