"""Tells somebody who found nothing which of his filters no document can pass, and what is near to it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from rapidfuzz import fuzz, process, utils

from headgate.knowledge.query import Warning as Notice
from headgate.knowledge.store import Passages
from headgate.knowledge.values import ANYTHING, Filters, Statistics

NOTHING_INGESTED: Final = Notice(
    level="warning",
    code="NOTHING_INGESTED",
    message="There are no documents to search yet.",
    suggestion="Run headgate knowledge ingest PATH to add some.",
)
_MOST_NAMED: Final = 10
_MOST_WANTED: Final = 5
_LONGEST_WANTED: Final = 60
_LIKE_ENOUGH: Final = 50
# What is shorter is somewhere in many paths.
_SHORTEST_PART: Final = 3
# So many documents are looked at for one whose name is near; they are read in batches.
_MOST_LOOKED_AT: Final = 5000
_BATCH: Final = 500


async def missing(passages: Passages, filters: Filters) -> tuple[Notice, ...]:
    """One warning for each filter that no document passes, or that none passes all of them together.

    None when there are no documents at all, and where some pass: then it is the query that finds nothing.
    """
    wanted = filters.of_sources
    if wanted == ANYTHING or await passages.source_ids(wanted):
        return ()
    there = await passages.statistics()
    if not there.sources:
        return ()
    found = [
        await _of_words("source_category", wanted.categories, there.categories),
        await _of_types(passages, wanted.doc_types, there.doc_types),
        await _of_files(passages, wanted.files),
        await _of_days(passages, wanted, there),
    ]
    notices = tuple(notice for notice in found if notice is not None)
    together = _told(
        "Each of the filters fits some document, but no document passes all of them",
        "leave one of them out, or see list_sources for what there is",
    )
    return notices or (together,)


async def _of_words(name: str, wanted: Sequence[str], there: Iterable[str]) -> Notice | None:
    known = sorted(filter(None, there))
    if not wanted or {one.casefold() for one in wanted} & {one.casefold() for one in known}:
        return None
    # There are few of them as a rule, and then all are worth knowing.
    if len(known) > _MOST_NAMED:
        known = await asyncio.to_thread(_nearest, wanted, {one: one for one in known})
    return _notice(name, wanted, known)


async def _of_types(passages: Passages, wanted: Sequence[str], there: Iterable[str]) -> Notice | None:
    # A document that calls itself something is still of the type of its file.
    if not wanted or await passages.source_ids(Filters(doc_types=tuple(wanted))):
        return None
    return await _of_words("doc_type", wanted, there)


async def _of_files(passages: Passages, wanted: Sequence[str]) -> Notice | None:
    if not wanted or await passages.source_ids(Filters(files=tuple(wanted))):
        return None
    ids = (await passages.source_ids(ANYTHING))[:_MOST_LOOKED_AT]
    files: list[str] = []
    for start in range(0, len(ids), _BATCH):
        batch = await passages.sources(ids[start : start + _BATCH])
        files += [source.file for source in batch.values()]
    near = _holding(files, wanted)
    if not near:
        names = {file: _last(file) for file in files}
        near = await asyncio.to_thread(_nearest, [_last(one) for one in wanted], names)
    # What was added to a pattern nobody has asked for.
    asked = [one for one in wanted if not (one.startswith("*/") and one[2:] in wanted)]
    return _notice("source_file", asked, near)


async def _of_days(passages: Passages, wanted: Filters, there: Statistics) -> Notice | None:
    days = Filters(date_from=wanted.date_from, date_to=wanted.date_to)
    if days == ANYTHING or await passages.source_ids(days):
        return None
    given = (("date_from", days.date_from), ("date_to", days.date_to))
    told = " and ".join(f"{name} {day}" for name, day in given if day)
    return _told(
        f"No document has a date that passes {told}; {_days_of(there)}",
        "ask for other days, or leave the dates out",
    )


def _days_of(there: Statistics) -> str:
    if not there.first_date:
        return "none has a date at all"
    return f"the oldest is of {there.first_date}, the newest of {there.last_date}"


def _holding(files: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """The first files whose path has what is wanted somewhere, in any case."""
    parts = [one.strip("*/").casefold() for one in wanted[:_MOST_WANTED]]
    parts = [part for part in parts if len(part) >= _SHORTEST_PART]
    return sorted(file for file in files if any(part in file.casefold() for part in parts))[:_MOST_NAMED]


def _last(path: str) -> str:
    return path.rstrip("/*").rpartition("/")[2]


def _nearest(wanted: Sequence[str], known: dict[str, str]) -> list[str]:
    """The keys whose values are most like one of those that are wanted, the most like first."""
    best: dict[str, float] = {}
    for one in wanted[:_MOST_WANTED]:
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


def _notice(name: str, wanted: Sequence[str], near: Sequence[str]) -> Notice:
    told = " or ".join(f"'{one[:_LONGEST_WANTED]}'" for one in wanted[:_MOST_WANTED])
    return _told(
        f"No document has {name} {told}",
        f"use one of these: {', '.join(near)}" if near else "see list_sources for what there is",
    )


def _told(message: str, suggestion: str) -> Notice:
    return Notice(
        level="warning",
        code="NO_SUCH_SOURCE",
        message=message,
        suggestion=suggestion,
    )
