"""Who says what of the graph: documents and imports have claims, and all that is known rests on them."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from headgate.knowledge.graph.claims import ClaimChanges, ClaimOwner
from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.sqlite.chunk_queries import json_list


class SqliteClaimTable:
    """The claims of one table, each about one row of another."""

    def __init__(self, table: str, about: str) -> None:
        self._table = table
        self._about = about

    def replace(
        self, connection: sqlite3.Connection, owner: ClaimOwner, said: Sequence[tuple[int, str]]
    ) -> ClaimChanges:
        """The owner says this and nothing else; a claim that is the same as before keeps its place."""
        missing = Counter(said)
        withdrawn: dict[int, int] = {}
        for number, about, words in connection.execute(
            f"SELECT number, {self._about}, said FROM {self._table} WHERE document = ? AND origin = ?"
            " ORDER BY number",
            owner,
        ):
            if missing[about, words] > 0:
                missing[about, words] -= 1
            else:
                withdrawn[number] = about
        added = list(missing.elements())
        numbers = schema.new_ids(connection, self._table, len(added))
        connection.execute(
            f"DELETE FROM {self._table} WHERE number IN (SELECT value FROM json_each(?))",
            (json_list(withdrawn),),
        )
        connection.executemany(
            f"INSERT INTO {self._table} (number, {self._about}, document, origin, said)"
            " VALUES (?, ?, ?, ?, ?)",
            [(number, about, *owner, words) for number, (about, words) in zip(numbers, added, strict=True)],
        )
        by_about: defaultdict[int, list[str]] = defaultdict(list)
        for about, words in added:
            by_about[about].append(words)
        return ClaimChanges(owner, frozenset(withdrawn.values()), dict(by_about))

    def claims_about(self, connection: sqlite3.Connection, id: int) -> tuple[list[str], bool]:
        """All that is said of one, imports first, and whether any import says something."""
        rows = connection.execute(
            f"SELECT said, document = 0 FROM {self._table} WHERE {self._about} = ?"
            " ORDER BY document > 0, origin, number",
            (id,),
        ).fetchall()
        return [said for said, _ in rows], any(imported for _, imported in rows)

    def claims_by(self, connection: sqlite3.Connection, owner: ClaimOwner) -> Iterator[tuple[int, str]]:
        """What an owner says, and about whom."""
        return connection.execute(
            f"SELECT {self._about}, said FROM {self._table} WHERE document = ? AND origin = ?", owner
        )

    def drop(self, connection: sqlite3.Connection, ids: Iterable[int]) -> None:
        """Nothing is said of these any more."""
        connection.execute(
            f"DELETE FROM {self._table} WHERE {self._about} IN (SELECT value FROM json_each(?))",
            (json_list(ids),),
        )


ENTITY_CLAIMS = SqliteClaimTable("entity_claims", "entity_id")
RELATIONSHIP_CLAIMS = SqliteClaimTable("relationship_claims", "relationship_id")
