"""The loop goes on while vectors are made, and a question does not wait for ten thousand tools."""

import asyncio
import struct
import threading
from collections.abc import Sequence

import pytest

from headgate.domain.errors import EmbedderUnavailable
from headgate.embedding.embedder import INPUT_VERSION, EmbeddingProgress, EmbeddingQuery
from headgate.embedding.threaded_embedder import ThreadedEmbedder

BOUND_SECONDS = 5.0
THREE, WAIT = ("a", "b", "c"), ("wait", "b", "c")
# A blend has length one, and these vectors have one dimension.
ONE = struct.pack("<1f", 1)


class Fake:
    """Embeds a text as its length; a text that starts with `wait` waits for `release`."""

    name = "fake"
    dimensions = 1
    fingerprint = "fake-1"

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started = threading.Event()
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.closed = False

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        self.threads.add(threading.get_ident())
        self.batches.append(len(texts))
        if texts[0].startswith("wait"):
            self.started.set()
            assert self.release.wait(BOUND_SECONDS)
        if texts[0] == "away":
            raise EmbedderUnavailable(self.name, "it is away")
        return [struct.pack("<1f", len(text)) for text in texts]

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        return self.embed(question.texts)

    def close(self) -> None:
        self.closed = True


async def test_tools_come_batch_by_batch_and_in_order() -> None:
    fake = Fake()
    async with ThreadedEmbedder(fake, batch_tools=2) as embedder:
        batches = [batch async for batch in embedder.embed_tools([THREE] * 5)]
    assert batches == [[ONE, ONE], [ONE, ONE], [ONE]]
    assert fake.batches == [6, 6, 3]
    assert threading.get_ident() not in fake.threads


async def test_a_question_is_answered_while_tools_are_embedded() -> None:
    fake = Fake()
    async with ThreadedEmbedder(fake, question_seconds=BOUND_SECONDS) as embedder:
        tools = embedder.embed_tools([WAIT])
        waiting = asyncio.ensure_future(anext(tools))
        assert await embedder.embed_query("find") == [struct.pack("<1f", 4)]
        assert not waiting.done()
        fake.release.set()
        assert await waiting == [ONE]


async def test_the_clauses_of_a_question_have_vectors_of_their_own() -> None:
    async with ThreadedEmbedder(Fake(), question_seconds=BOUND_SECONDS) as embedder:
        assert len(await embedder.embed_query("find a cheap flight, book a good hotel" + " there" * 30)) == 3


async def test_whatever_is_under_way_is_told_to_end() -> None:
    fake = Fake()
    async with ThreadedEmbedder(fake) as embedder:
        assert await embedder.embed_query("find")
        assert not fake.closed
    assert fake.closed


async def test_a_question_that_takes_too_long_says_so() -> None:
    fake = Fake()
    async with ThreadedEmbedder(fake, question_seconds=0.01) as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"more than 0\.01 s"):
            await embedder.embed_query("wait")
        fake.release.set()


def test_vectors_are_kept_under_the_model_and_the_texts() -> None:
    assert ThreadedEmbedder(Fake()).fingerprint == f"fake-1-{INPUT_VERSION}"


async def test_an_embedder_that_is_away_is_heard_of() -> None:
    async with ThreadedEmbedder(Fake()) as embedder:
        with pytest.raises(EmbedderUnavailable, match="it is away"):
            await embedder.embed_query("away")
        with pytest.raises(EmbedderUnavailable, match="it is away"):
            await anext(embedder.embed_tools([("away", "", "")]))
