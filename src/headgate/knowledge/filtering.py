"""Which sources pass a filter, the same in every store, and what is meant by one that is written loosely."""

from collections.abc import Iterable
from typing import Final

import msgspec

from headgate.domain.wildcards import matches_any
from headgate.knowledge.values import Filters

# What people call the types of documents, often by the ends of their files. Nothing that a document may call
# itself, such as log or table: the filter would let others pass too.
_CALLED: Final = {
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


def passes(filters: Filters, file: str, category: str, doc_type: str, date: str) -> bool:
    """Whether a source passes; phrases are a matter of its chunks. Case matters only in files."""
    return (
        _one_of(category, filters.categories)
        and (not filters.files or matches_any(file, filters.files))
        and (_one_of(doc_type, filters.doc_types) or _ends(file, endings_of(filters.doc_types)))
        # Without a date nobody knows whether it is in the range.
        and (not filters.date_from or (bool(date) and date >= filters.date_from))
        and (not filters.date_to or (bool(date) and date <= filters.date_to))
    )


def endings_of(doc_types: Iterable[str]) -> tuple[str, ...]:
    """How files end, in ASCII of any case, that are of these types whatever their documents say."""
    return tuple(ending for one in doc_types for ending in _ENDINGS.get(one.casefold(), ()))


def widened(filters: Filters) -> Filters:
    """With what is meant besides: a type by another name, and a file by the last parts of its path."""
    return msgspec.structs.replace(
        filters,
        doc_types=_with(filters.doc_types, (_type_of(word) for word in filters.doc_types)),
        files=_with(filters.files, (f"*/{file}" for file in filters.files if _is_part(file))),
    )


def _with(given: tuple[str, ...], meant: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*given, *meant}))


def _type_of(word: str) -> str:
    bare = word.removeprefix(".")
    return _CALLED.get(bare.casefold(), bare)


def _is_part(file: str) -> bool:
    # One that begins with a star fits any path already.
    return "/" not in file and not file.startswith("*")


def _ends(file: str, endings: Iterable[str]) -> bool:
    # Bytes, so that only ASCII has a case, as in every store.
    name = file.encode(errors="replace").lower()
    return any(name.endswith(ending.encode()) for ending in endings)


def _one_of(value: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or value.casefold() in {one.casefold() for one in wanted}
