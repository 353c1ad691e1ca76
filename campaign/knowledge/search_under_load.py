"""The gateway answers others while many chunks are searched and more come in (K10)."""

import asyncio
import random
import struct

from campaign.bystander import bystander
from campaign.knowledge.knowledge_gateway import Opened, opened
from campaign.knowledge.knowledge_process import Place
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, Usage, case
from headgate.knowledge.data_model import IngestedDocument, NewChunk, SourceRecord
from headgate.knowledge.interfaces import KnowledgeStore
from testkit.embeddings_endpoint import word_embedder, word_vector
from testkit.misbehaving_upstreams import misbehaving

_CALLERS = 6
_CHUNKS_PER_DOCUMENT = 100
_WORDS = [f"word{number}" for number in range(3_000)]


@case(
    "K10",
    "many chunks (100,000) searched and more ingested beside calls of other tools",
    "no stall over 100 ms; /health and the other tools answer",
    quick_seconds=200,
    full_seconds=1800,
)
async def busy(trial: Trial) -> None:
    """Other clients notice nothing."""
    chunks = trial.size(quick=5_000, full=100_000)
    with word_embedder() as environment:
        async with opened(trial, environment=environment, others={"steady": misbehaving()}) as here:
            shelf = Shelf(trial.directory / "shelf", trial.size(quick=20, full=100))
            # The tables, and the model of the vectors.
            await here.place.run("ingest", str(shelf.top))
            await _fill(here.place, chunks)
            usage = Usage(here.gateway)
            async with bystander(trial, here.gateway, "steady_echo"):
                seconds = await _work(trial, here, shelf)
            seconds.sort()
            trial.measure("chunks", chunks)
            trial.measure("searches", len(seconds))
            trial.measure("p50", seconds[len(seconds) // 2] * 1000, "ms")
            trial.measure("p99", seconds[int(len(seconds) * 0.99)] * 1000, "ms")
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            trial.check("there were searches", len(seconds) > 50, len(seconds))


async def _work(trial: Trial, here: Opened, shelf: Shelf) -> list[float]:
    """Search while documents come in; gives the seconds of each search."""
    seconds: list[float] = []
    over = asyncio.Event()

    async def search(number: int) -> None:
        dice = random.Random(number)
        while not over.is_set():
            query = " ".join(dice.choices(_WORDS, k=4))
            answer = await here.ask(
                "semantic_search", query=query, response_mode="preview", boosts=number % 2 == 0
            )
            trial.check("a search is answered", answer.ok, answer.text[:200])
            seconds.append(answer.seconds)

    async with asyncio.TaskGroup() as group:
        for number in range(_CALLERS):
            group.create_task(search(number))
        for _ in range(trial.size(quick=2, full=8)):
            shelf.stir(share=0.8)
            ended = await here.place.run("ingest", str(shelf.top))
            trial.check("the ingestion ends well", ended.code == 0, ended.err)
        over.set()
    return seconds


async def _fill(place: Place, chunks: int) -> None:
    """Store so many chunks, with vectors of the embedder that there is."""
    dice = random.Random(10)
    async with place.open() as store:
        for number in range(chunks // _CHUNKS_PER_DOCUMENT):
            await store.replace_document(_document(f"filled/{number}.txt", dice))
        await _give_vectors(store)


def _document(file: str, dice: random.Random) -> IngestedDocument:
    new = tuple(
        NewChunk(
            text=" ".join(dice.choices(_WORDS, k=60)), header=file, tokens=120, digest=f"{file} {number}"
        )
        for number in range(_CHUNKS_PER_DOCUMENT)
    )
    return IngestedDocument(source=SourceRecord(file=file, chunks=len(new)), chunks=new)


async def _give_vectors(store: KnowledgeStore) -> None:
    model = await store.model_fingerprint()
    while waiting := await store.chunks_without_vector(2_000):
        made = {id: struct.pack("<64f", *word_vector(passage)) for id, passage in waiting}
        await store.store_vectors(model, made)
