"""Who says what of the graph: documents and imports have claims, and all that is known rests on them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headgate.knowledge.graph.claims import ClaimChanges, ClaimOwner
from headgate.knowledge.stores.postgres.statements import execute, fetch_rows
from headgate.storage.postgres.connection_pool import Connection


class EntityClaims(NamedTuple):
    """All that is said of one, imports first, and whether any import says something."""

    claims: list[str]
    imported: bool


class PostgresClaimTable:
    """The claims of one table, each about one row of another."""

    def __init__(self, table: str, about: str) -> None:
        self._table = table
        self._about = about

    async def replace(
        self, connection: Connection, owner: ClaimOwner, said: Sequence[tuple[int, str]]
    ) -> ClaimChanges:
        """The owner says this and nothing else; a claim that is the same as before keeps its place."""
        missing = Counter(said)
        withdrawn: dict[int, int] = {}
        for number, about, words in await fetch_rows(
            connection,
            f"SELECT number, {self._about}, said FROM {self._table} WHERE document = %s AND origin = %s"
            " ORDER BY number",
            *owner,
        ):
            if missing[about, words] > 0:
                missing[about, words] -= 1
            else:
                withdrawn[number] = about
        if withdrawn:
            await execute(connection, f"DELETE FROM {self._table} WHERE number = ANY(%s)", list(withdrawn))
        added = list(missing.elements())
        await self._add(connection, owner, added)
        by_about: defaultdict[int, list[str]] = defaultdict(list)
        for about, words in added:
            by_about[about].append(words)
        return ClaimChanges(owner, frozenset(withdrawn.values()), dict(by_about))

    async def _add(self, connection: Connection, owner: ClaimOwner, added: Sequence[tuple[int, str]]) -> None:
        if added:
            await execute(
                connection,
                f"INSERT INTO {self._table} ({self._about}, document, origin, said)"
                " SELECT about, %s, %s, words FROM unnest(%s::bigint[], %s::text[])"
                " WITH ORDINALITY AS new (about, words, place) ORDER BY place",
                *owner,
                [about for about, _ in added],
                [words for _, words in added],
            )

    async def claims_about(self, connection: Connection, ids: Sequence[int]) -> dict[int, EntityClaims]:
        """All that is said of each of them; nothing of those that nobody speaks of."""
        found: dict[int, EntityClaims] = {}
        if not ids:
            return found
        for about, words, imported in await fetch_rows(
            connection,
            f"SELECT {self._about}, said, document = 0 FROM {self._table} WHERE {self._about} = ANY(%s)"
            " ORDER BY document > 0, origin, number",
            list(ids),
        ):
            # Imports come first, so that the first says whether there is one.
            found.setdefault(about, EntityClaims([], imported)).claims.append(words)
        return found

    async def claims_by(self, connection: Connection, owner: ClaimOwner) -> list[tuple[int, str]]:
        """What an owner says, and about whom."""
        found = await fetch_rows(
            connection,
            f"SELECT {self._about}, said FROM {self._table} WHERE document = %s AND origin = %s"
            " ORDER BY number",
            *owner,
        )
        return [(about, words) for about, words in found]

    async def drop(self, connection: Connection, ids: Iterable[int]) -> None:
        """Nothing is said of these any more."""
        await execute(connection, f"DELETE FROM {self._table} WHERE {self._about} = ANY(%s)", list(ids))


ENTITY_CLAIMS = PostgresClaimTable("knowledge_entity_claims", "entity_id")
RELATIONSHIP_CLAIMS = PostgresClaimTable("knowledge_relationship_claims", "relationship_id")
