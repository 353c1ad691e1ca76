"""By how much a chunk's score grows that fits its query in other ways than by words and meaning."""

import datetime
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headgate.domain.errors import ConfigError
from headgate.knowledge.query import Boosts
from headgate.knowledge.values import VENDOR_TYPES, Chunk, Entity, name_key
from headgate.search.stemmer import stem
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, terms

# A name of more words is known by a shorter one too.
_LONGEST_NAME_WORDS: Final = 5
# Nothing is recent after that.
_RECENT_DAYS: Final = 365
# What people call the kinds of files, by stem.
_CALLED: Final = {
    stem(word): kind
    for kind, names in {
        "pdf": ["pdf", "pdfs"],
        "csv": ["csv", "tsv", "spreadsheet", "excel"],
        "docx": ["docx", "doc"],
        "html": ["html", "htm", "webpage", "website"],
        "markdown": ["markdown", "md", "readme"],
        "json": ["json", "jsonl"],
        "text": ["txt", "plaintext"],
    }.items()
    for word in names
}
_AROUND: Final = "\"'\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb()[]{}<>,;:!?"
_POSSESSIVE: Final = re.compile(r"['\u2019]s?$")


class Span(NamedTuple):
    """Neighbouring words of a query that may be a name."""

    start: int
    end: int
    key: str


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a query names besides its subject."""

    vendors: frozenset[int] = frozenset()
    entities: frozenset[int] = frozenset()
    stems: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()


def checked(boosts: Boosts) -> Boosts:
    """The same; raises ConfigError when one is not from 0 to 1."""
    for name, share in msgspec.structs.asdict(boosts).items():
        if not (math.isfinite(share) and 0 <= share <= 1):
            raise ConfigError(f"the boost {name} {share:g} cannot be used", hint="give a number from 0 to 1")
    return boosts


def spans(text: str) -> list[Span]:
    """Everything in the query that may be the name of somebody, as keys of names."""
    parts = text.split()
    return [
        Span(start, end, key)
        for start in range(len(parts))
        for end in range(start + 1, min(start + _LONGEST_NAME_WORDS, len(parts)) + 1)
        for key in _spellings(" ".join(parts[start:end]))
    ]


def _spellings(words: str) -> Iterable[str]:
    """With and without what a sentence puts around a name; none when it says nothing."""
    bare = words.strip(_AROUND)
    plain = bare.strip(".")
    found = dict.fromkeys(map(name_key, (words, bare, plain, _POSSESSIVE.sub("", plain))))
    # `us` and `it` are names too, but hardly ever meant as such.
    return [key for key in found if key and content_words(key)]


def wishes(text: str, found: Iterable[Span], known: Iterable[Entity]) -> Wishes:
    """What a query asks for, where `known` are the entities that have one of the keys.

    Of names within a longer name only the longest counts: `Bank of America` is no place.
    """
    names: dict[str, list[Entity]] = {}
    for entity in known:
        for name in (entity.name, *entity.aliases):
            names.setdefault(name_key(name), []).append(entity)
    matched = [span for span in found if span.key in names]
    meant = [
        entity
        for span in matched
        if not any(_within(span, other) for other in matched)
        for entity in names[span.key]
    ]
    subjects = frozenset(stem(word) for word in content_words(text) if word not in WEAK_STOP_WORDS)
    return Wishes(
        vendors=frozenset(entity.id for entity in meant if entity.type.upper() in VENDOR_TYPES),
        entities=frozenset(entity.id for entity in meant if entity.type.upper() not in VENDOR_TYPES),
        # In lower case too: `PDFs` is cut at its hump.
        stems=frozenset(terms(text) + terms(text.lower())),
        topics=subjects,
    )


def _within(span: Span, other: Span) -> bool:
    inside = other.start <= span.start and span.end <= other.end
    return inside and other.end - other.start > span.end - span.start


def shares(
    boosts: Boosts, wishes: Wishes, chunk: Chunk, mentioned: Collection[int], today: datetime.date
) -> dict[str, float]:
    """By which share the score grows, for each boost that fits the chunk."""
    fitting = {
        "vendor": boosts.vendor * (not wishes.vendors.isdisjoint(mentioned)),
        "doc_type": boosts.doc_type * _of_type(wishes, chunk.doc_type),
        "recency": boosts.recency * _freshness(chunk.date, today),
        "entity": boosts.entity * (not wishes.entities.isdisjoint(mentioned)),
        "topic": boosts.topic * _on_topic(wishes, chunk),
    }
    return {name: share for name, share in fitting.items() if share > 0}


def boosted(score: float, shares: Mapping[str, float]) -> float:
    """The score with all that fits, before it is clamped: of two above 1 the higher one stays first."""
    return score * (1 + sum(shares.values()))


def clamped(score: float) -> float:
    """From 0 to 1."""
    return min(1.0, max(0.0, score))


def _of_type(wishes: Wishes, doc_type: str) -> bool:
    kind = doc_type.casefold()
    if any(_CALLED.get(word) == kind for word in wishes.stems):
        return True
    own = terms(doc_type)
    return bool(own) and wishes.stems.issuperset(own)


def _freshness(day: str, today: datetime.date) -> float:
    """From 1 for today to 0 for a year ago; 0 for what has no date."""
    try:
        age = (today - datetime.date.fromisoformat(day)).days
    except ValueError:
        return 0.0
    return clamped(1 - age / _RECENT_DAYS)


def _on_topic(wishes: Wishes, chunk: Chunk) -> bool:
    # The first part is the name of the file.
    _, _, headings = chunk.header.partition(" > ")
    return not wishes.topics.isdisjoint(terms(f"{headings} {chunk.category}"))
