"""Filters: which sources pass, how loose values are widened, and suggestions when no document matches."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from rapidfuzz import fuzz, process, utils

from headgate.domain.wildcards import matches_any
from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters, StoreStatistics
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.query import SearchNotice as Notice

# What people call the types of documents, often by the ends of their files. Nothing that a document may call
# itself, such as log or table: the filter would let others pass too.
_DOC_TYPE_BY_NAME: Final = {
    name: kind
    for kind, names in {
        "markdown": "md mdown mkd",
        "text": "txt plaintext",
        "html": "htm xhtml",
        "docx": "doc",
        "csv": "tsv excel spreadsheet",
        "json": "jsonl ndjson",
    }.items()
    for name in names.split()
}
# How files end whose documents may call themselves what they like; of the types of those both count.
_ENDINGS: Final = {"markdown": (".md", ".markdown", ".mdown", ".mkd")}


def passes(filters: DocumentFilters, file: str, category: str, doc_type: str, date: str) -> bool:
    """Whether a source passes; phrases are a matter of its chunks. Case matters only in files."""
    # Bytes, so that only ASCII has a case, as in every store.
    name, endings = file.encode(errors="replace").lower(), file_suffixes(filters.doc_types)
    return (
        _one_of(category, filters.categories)
        and (not filters.files or matches_any(file, filters.files))
        and (_one_of(doc_type, filters.doc_types) or any(name.endswith(one.encode()) for one in endings))
        # A document without a date matches no range.
        and (not filters.date_from or (bool(date) and date >= filters.date_from))
        and (not filters.date_to or (bool(date) and date <= filters.date_to))
    )


def _one_of(value: str, accepted: tuple[str, ...]) -> bool:
    return not accepted or value.casefold() in {one.casefold() for one in accepted}


def file_suffixes(doc_types: Iterable[str]) -> tuple[str, ...]:
    """How files end, in ASCII of any case, that are of these types whatever their documents say."""
    return tuple(ending for one in doc_types for ending in _ENDINGS.get(one.casefold(), ()))


def widen_filters(filters: DocumentFilters) -> DocumentFilters:
    """With what is meant besides: a type by another name, and a file by the last parts of its path."""
    bare = [word.removeprefix(".") for word in filters.doc_types]
    types = {_DOC_TYPE_BY_NAME.get(word.casefold(), word) for word in bare}
    # A pattern that begins with a star fits any path already.
    paths = {f"*/{file}" for file in filters.files if "/" not in file and not file.startswith("*")}
    return msgspec.structs.replace(
        filters,
        doc_types=tuple(sorted({*filters.doc_types, *types})),
        files=tuple(sorted({*filters.files, *paths})),
    )


NOTHING_INGESTED: Final = Notice(
    level="warning",
    code="NOTHING_INGESTED",
    message="There are no documents to search yet.",
    suggestion="Run headgate knowledge ingest PATH to add some.",
)
_MOST_NAMED: Final = 10
_MOST_VALUES: Final = 5
_LONGEST_VALUE: Final = 60
_LIKE_ENOUGH: Final = 50
# A shorter text is part of many paths.
_SHORTEST_PART: Final = 3
# Documents that are compared with a name, in batches.
_MOST_LOOKED_AT: Final = 5000
_BATCH: Final = 500


async def suggest_filters(passages: IndexReader, filters: DocumentFilters) -> tuple[Notice, ...]:
    """One warning for each filter that no document passes, or that none passes all of them together.

    None when there are no documents at all, and where some pass: then it is the query that finds nothing.
    """
    source_filters = filters.source_filters
    if source_filters == NO_FILTERS or await passages.source_ids(source_filters):
        return ()
    there = await passages.statistics()
    if not there.sources:
        return ()
    found = [
        await _value_suggestions("source_category", source_filters.categories, there.categories),
        # A document with a type of its own still has the type of its file.
        await _value_suggestions("doc_type", source_filters.doc_types, there.doc_types)
        if source_filters.doc_types
        and not await passages.source_ids(DocumentFilters(doc_types=source_filters.doc_types))
        else None,
        await _file_suggestions(passages, source_filters.files),
        await _date_suggestions(passages, source_filters, there),
    ]
    notices = tuple(notice for notice in found if notice is not None)
    together = _suggestion_notice(
        "Each of the filters fits some document, but no document passes all of them",
        "leave one of them out, or see list_sources for what there is",
    )
    return notices or (together,)


async def _value_suggestions(name: str, values: Sequence[str], there: Iterable[str]) -> Notice | None:
    known = sorted(filter(None, there))
    if not values or {one.casefold() for one in values} & {one.casefold() for one in known}:
        return None
    # There are few of them as a rule, and then all are worth knowing.
    if len(known) > _MOST_NAMED:
        known = await asyncio.to_thread(_nearest, values, {one: one for one in known})
    return _notice(name, values, known)


async def _file_suggestions(passages: IndexReader, values: Sequence[str]) -> Notice | None:
    if not values or await passages.source_ids(DocumentFilters(files=tuple(values))):
        return None
    ids = (await passages.source_ids(NO_FILTERS))[:_MOST_LOOKED_AT]
    files: list[str] = []
    for start in range(0, len(ids), _BATCH):
        batch = await passages.sources(ids[start : start + _BATCH])
        files += [source.file for source in batch.values()]
    # The first whose path contains one of the names, in any case.
    parts = [one.strip("*/").casefold() for one in values[:_MOST_VALUES]]
    parts = [part for part in parts if len(part) >= _SHORTEST_PART]
    near = sorted(file for file in files if any(part in file.casefold() for part in parts))[:_MOST_NAMED]
    if not near:
        names = {file: _last(file) for file in files}
        near = await asyncio.to_thread(_nearest, [_last(one) for one in values], names)
    # The caller did not write the added part of the pattern.
    typed = [one for one in values if not (one.startswith("*/") and one[2:] in values)]
    return _notice("source_file", typed, near)


async def _date_suggestions(
    passages: IndexReader, filters: DocumentFilters, there: StoreStatistics
) -> Notice | None:
    days = DocumentFilters(date_from=filters.date_from, date_to=filters.date_to)
    if days == NO_FILTERS or await passages.source_ids(days):
        return None
    given = (("date_from", days.date_from), ("date_to", days.date_to))
    described = " and ".join(f"{name} {day}" for name, day in given if day)
    days_there = f"the oldest is of {there.first_date}, the newest of {there.last_date}"
    return _suggestion_notice(
        f"No document has a date that passes {described}; "
        f"{days_there if there.first_date else 'none has a date at all'}",
        "ask for other days, or leave the dates out",
    )


def _last(path: str) -> str:
    return path.rstrip("/*").rpartition("/")[2]


def _nearest(values: Sequence[str], known: dict[str, str]) -> list[str]:
    """The keys whose values are most similar to one of the given ones, most similar first."""
    best: dict[str, float] = {}
    for one in values[:_MOST_VALUES]:
        found = process.extract(
            one,
            known,
            scorer=fuzz.WRatio,
            processor=utils.default_process,
            limit=_MOST_NAMED,
            score_cutoff=_LIKE_ENOUGH,
        )
        for _, score, key in found:
            best[key] = max(score, best.get(key, 0.0))
    return sorted(best, key=lambda key: (-best[key], key))[:_MOST_NAMED]


def _notice(name: str, values: Sequence[str], near: Sequence[str]) -> Notice:
    described = " or ".join(f"'{one[:_LONGEST_VALUE]}'" for one in values[:_MOST_VALUES])
    return _suggestion_notice(
        f"No document has {name} {described}",
        f"use one of these: {', '.join(near)}" if near else "see list_sources for what there is",
    )


def _suggestion_notice(message: str, suggestion: str) -> Notice:
    return Notice(level="warning", code="NO_SUCH_SOURCE", message=message, suggestion=suggestion)
