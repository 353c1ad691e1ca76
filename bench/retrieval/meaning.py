"""Search by meaning as the gateway does it, with every vector made before the first question."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

from headgate.embedding.embedder import Embedder
from headgate.embedding.tool_index import ToolVectorIndex, open_tool_index

# Making vectors takes minutes; the file of them is looked at in between.
_POLL_SECONDS: Final = 0.02
# A few tools are made at a time, and take seconds on a busy machine.
_PATIENCE_SECONDS: Final = 30.0


class NothingKept:
    """A store without a file: the embedder of the benchmark has one of its own."""

    async def vectors(self, model: str) -> dict[str, bytes]:
        """None."""
        return {}

    def store_vectors(self, model: str, vectors: dict[str, bytes]) -> "asyncio.Future[None]":
        """Done at once."""
        return _done()

    def delete_vectors(self, model: str, hashes: Collection[str]) -> "asyncio.Future[None]":
        """Done at once."""
        return _done()


def _done() -> "asyncio.Future[None]":
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


@asynccontextmanager
async def open_meanings(embedder: Embedder) -> AsyncIterator[ToolVectorIndex]:
    """Without tools as yet."""
    async with open_tool_index(lambda: embedder, NothingKept()) as meanings:
        yield meanings


class NoProgress(Exception):
    """Vectors are missing, and none was made for a long time."""


async def settle(meanings: ToolVectorIndex) -> None:
    """Wait until every tool has its vector; raises NoProgress."""
    before, since = -1, time.monotonic()
    while True:
        done, tools = meanings.progress()
        if done == tools:
            return
        if done != before:
            before, since = done, time.monotonic()
        elif time.monotonic() - since > _PATIENCE_SECONDS:
            raise NoProgress(f"{done:,} of {tools:,} tools have a vector")
        await asyncio.sleep(_POLL_SECONDS)
