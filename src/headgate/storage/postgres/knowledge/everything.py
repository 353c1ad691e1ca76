"""Reads all there is of something, as it was at one moment, a piece at a time."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from headgate.storage.postgres.pool import Database

T = TypeVar("T")

# In the order of `Mentioned`, and as it stands in the texts.
MENTIONS: Final = (
    "SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence"
    " FROM knowledge_mentions AS m JOIN knowledge_entities AS e ON e.id = m.entity_id"
    " ORDER BY m.chunk_id, m.entity_id, m.start, m.stop"
)
# So much is in memory at once.
_ROWS_AT_ONCE: Final = 500
# Whoever exports may take as long as it takes; one that has been forgotten must not hold on for good.
_MOST_SECONDS: Final = 3600.0


async def every(database: Database, statement: str, made: Callable[[Sequence[Any]], T]) -> AsyncIterator[T]:
    """What `made` makes of each row; raises StoreAway."""
    async with (
        database.reading(_MOST_SECONDS) as connection,
        connection.cursor(name="everything") as cursor,
    ):
        await cursor.execute(statement)
        while found := await cursor.fetchmany(_ROWS_AT_ONCE):
            for row in found:
                yield made(row)
