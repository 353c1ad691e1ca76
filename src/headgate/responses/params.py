"""What each processor is told to do."""

from enum import StrEnum

import msgspec


class Keep(StrEnum):
    """What a projection does with the fields that are named."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


class SearchMode(StrEnum):
    """How something is looked for."""

    REGEX = "regex"
    BM25 = "bm25"
    FUZZY = "fuzzy"
    CONTEXT = "context"
    STRUCTURE = "structure"


class ContextType(StrEnum):
    """What is shown around a hit."""

    PARAGRAPH = "paragraph"
    SECTION = "section"
    SENTENCE = "sentence"
    LINES = "lines"


class Unit(StrEnum):
    """What a content is counted in."""

    LINES = "lines"
    ELEMENTS = "elements"
    CHARACTERS = "characters"


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields are kept or left out; each is a path as people write it."""

    fields: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mode: Keep = Keep.INCLUDE


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, and how much of what is found is shown."""

    pattern: str
    mode: SearchMode = SearchMode.REGEX
    # None is as many as there is room for, or what is safe for the mode.
    max_results: int | None = None
    offset: int = 0
    before: int = 0
    after: int = 0
    case_insensitive: bool = False
    # A dot matches the end of a line too.
    multiline: bool = False
    threshold: float = 0.7
    top_k: int = 5
    context_type: ContextType = ContextType.PARAGRAPH
    # The most characters that the hits may have together.
    room: int = 8000


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """Which part is looked at, and how deep."""

    path: str = ""
    max_depth: int = 3
    room: int = 8000


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Which part is read, from where on, and how much of it."""

    path: str = ""
    offset: int = 0
    limit: int | None = None
    # None is elements of JSON and lines of anything else.
    unit: Unit | None = None
    room: int = 8000


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One SELECT over a part of the content."""

    sql: str
    path: str = ""
    room: int = 8000
