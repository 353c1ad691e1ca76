"""Which chunks pass a filter, found with the help of the indexes."""

from collections.abc import Sequence
from typing import NamedTuple

from headgate.knowledge.filtering import endings_of
from headgate.knowledge.values import Filters
from headgate.storage.postgres.knowledge.rows import rows, storable
from headgate.storage.postgres.pool import Connection

# Longer words do not fit into the index, and the first letters of one are as good.
LONGEST_LEXEME = 100


class Selection(NamedTuple):
    """The chunks that pass: those of some sources, or with a phrase in them some chunks."""

    sources: list[int]
    # None when all chunks of the sources pass.
    chunks: list[int] | None
    # At most as many chunks pass.
    most: int


async def select(connection: Connection, filters: Filters) -> Selection | None:
    """None when everything passes."""
    phrases = [phrase for phrase in filters.phrases if phrase]
    of_sources = filters.of_sources
    if of_sources == Filters():
        if not phrases:
            return None
        chunks = await _with_phrases(connection, phrases, None)
        return Selection([], chunks, len(chunks))
    passing = await passing_sources(connection, of_sources)
    sources = [id for id, _ in passing]
    if not phrases or not sources:
        return Selection(sources, None, sum(chunks for _, chunks in passing))
    chunks = await _with_phrases(connection, phrases, sources)
    return Selection(sources, chunks, len(chunks))


async def passing_sources(connection: Connection, filters: Filters) -> list[tuple[int, int]]:
    """The sources that pass, by the names of their files, each with the number of its chunks."""
    filters = storable(filters)
    conditions: list[str] = []
    values: list[object] = []
    if filters.categories:
        conditions.append("category_key = ANY(%s)")
        values.append([one.casefold() for one in filters.categories])
    if filters.doc_types:
        conditions.append("(doc_type_key = ANY(%s) OR file ILIKE ANY(%s::text[]))")
        endings = [_like(f"*{one}") for one in endings_of(filters.doc_types)]
        values += [[one.casefold() for one in filters.doc_types], endings]
    if filters.files:
        conditions.append("file LIKE ANY(%s)")
        values.append([_like(one) for one in filters.files])
    if filters.date_from:
        conditions.append("date <> '' AND date >= %s")
        values.append(filters.date_from)
    if filters.date_to:
        conditions.append("date <> '' AND date <= %s")
        values.append(filters.date_to)
    where = " AND ".join(conditions) or "true"
    statement = "SELECT id, chunks FROM knowledge_sources WHERE " + where + " ORDER BY file, id"
    found = await rows(connection, statement, *values)
    return [(id, chunks) for id, chunks in found]


def _like(pattern: str) -> str:
    """The pattern in PostgreSQL's own words."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, "\\" + special)
    return pattern.replace("*", "%")


async def _with_phrases(
    connection: Connection, phrases: Sequence[tuple[str, ...]], sources: list[int] | None
) -> list[int]:
    """The index finds the chunks with all the words; in those the phrases are looked for letter by letter."""
    words = sorted({word for phrase in phrases for word in phrase})
    conditions = ["lexemes @@ %s::tsquery", *["strpos(words, %s) > 0"] * len(phrases)]
    values: list[object] = [
        " & ".join(map(lexeme, words)),
        *(in_words(phrase) for phrase in phrases),
    ]
    if sources is not None:
        conditions.append("source_id = ANY(%s)")
        values.append(sources)
    statement = "SELECT id FROM knowledge_chunks WHERE " + " AND ".join(conditions)
    return [id for (id,) in await rows(connection, statement, *values)]


def in_words(words: Sequence[str]) -> str:
    """Words as `knowledge_chunks.words` has them: a blank before and after each of them."""
    return f" {' '.join(words)} "


def lexeme(word: str) -> str:
    """A word as it is written in a tsvector or a tsquery."""
    return "'" + word[:LONGEST_LEXEME].replace("\\", "\\\\").replace("'", "''") + "'"
