"""The embedder of documents is loaded once for all, and one that cannot be had is not tried by each."""

import asyncio
import struct
import threading
from collections.abc import Sequence

import pytest

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import Embedder, EmbeddingProgress, EmbeddingQuery
from headgate.embedding.threaded_embedder import RELOAD_SECONDS, PassageEmbedder

BOUND_SECONDS = 5.0


class Length:
    """Embeds a text as its length."""

    name = "length"
    dimensions = 1
    fingerprint = "length-1"

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[Sequence[str]] = []

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        self.asked.append(texts)
        return [struct.pack("<1f", len(text)) for text in texts]

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        return self.embed(question.texts)

    def close(self) -> None:
        self.closed = True


class Shop:
    """Makes embedders: slowly, and only as long as it has some."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.sold_out = False
        self.made = Length()
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def clock(self) -> float:
        return self.now

    def make(self) -> Embedder:
        self.asked += 1
        self.begun.set()
        assert self.open.wait(BOUND_SECONDS)
        if self.sold_out:
            raise ConfigError("the model could not be loaded", hint="check its name")
        return self.made

    def embedder(self) -> PassageEmbedder:
        return PassageEmbedder(self.make, self.clock)


async def test_it_is_loaded_once_when_several_ask_at_once() -> None:
    shop = Shop()
    embedder = shop.embedder()
    assert (embedder.name, embedder.fingerprint, embedder.dimensions) == ("", "", 0)
    first, second = await asyncio.gather(embedder.embed_query("four"), embedder.embed_query("seventh"))
    assert (first, second) == (struct.pack("<1f", 4), struct.pack("<1f", 7))
    assert (shop.asked, embedder.name, embedder.dimensions) == (1, "length", 1)
    await embedder.close()
    assert shop.made.closed


async def test_whoever_leaves_does_not_take_the_model_from_the_others() -> None:
    shop = Shop()
    shop.open.clear()
    embedder = shop.embedder()
    first = asyncio.create_task(embedder.load())
    assert await asyncio.to_thread(shop.begun.wait, BOUND_SECONDS)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(embedder.load())
    shop.open.set()
    async with asyncio.timeout(BOUND_SECONDS):
        await second
    assert shop.asked == 1
    await embedder.close()


async def test_a_model_that_cannot_be_had_is_tried_again_after_a_while() -> None:
    shop = Shop()
    shop.sold_out = True
    embedder = shop.embedder()
    for _ in range(3):
        with pytest.raises(ConfigError, match="could not be loaded"):
            await embedder.embed_query("x")
    assert shop.asked == 1
    shop.now, shop.sold_out = RELOAD_SECONDS, False
    await embedder.load()
    assert shop.asked == 2
    await embedder.close()


async def test_of_a_long_question_only_the_whole_is_read() -> None:
    shop = Shop()
    embedder = shop.embedder()
    text = "find a cheap flight, book a good hotel" + " there" * 30
    await embedder.embed_query(text)
    assert shop.made.asked == [[text]]
    await embedder.close()


async def test_it_is_closed_while_it_is_being_loaded() -> None:
    shop = Shop()
    shop.open.clear()
    embedder = shop.embedder()
    waiting = asyncio.create_task(embedder.load())
    assert await asyncio.to_thread(shop.begun.wait, BOUND_SECONDS)
    async with asyncio.timeout(BOUND_SECONDS):
        await embedder.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    shop.open.set()
    assert embedder.name == ""
