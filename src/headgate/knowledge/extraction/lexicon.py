"""The word lists of lexicon.toml: legal forms, roles, places, known names, and words that are never names."""

import pkgutil
import tomllib
from typing import Any, Final

# Not opened as a file: it is read as the module itself is.
_LISTS: Final[dict[str, Any]] = tomllib.loads((pkgutil.get_data(__name__, "lexicon.toml") or b"").decode())


def _words(key: str) -> frozenset[str]:
    return frozenset(_LISTS[key].split())


def _phrases(key: str) -> tuple[str, ...]:
    """One or more words each, in their order."""
    lines = _LISTS[key].splitlines()
    return tuple(name.strip() for line in lines for name in line.split(",") if name.strip())


LEGAL_FORMS: Final[tuple[str, ...]] = tuple(_LISTS["legal_forms"])
INSTITUTIONS: Final = _words("institutions")
INSTITUTIONS_BEFORE: Final = _words("institutions_before")
TRADES: Final = _words("trades")
PRODUCT_ENDINGS: Final = _words("product_endings")
PRODUCT_KINDS: Final = frozenset(_phrases("product_kinds"))
COMPANY_KINDS: Final = frozenset(_phrases("company_kinds"))
TITLES: Final = _words("titles")
ROLES: Final = _phrases("roles")
LONG_ROLES: Final = _phrases("long_roles")
FUNCTION_WORDS: Final = _words("function_words")
MONTHS_AND_DAYS: Final = _words("months_and_days")
COMMON_WORDS: Final = _words("common_words")
ACRONYMS: Final = _words("acronyms")
NUMBERED_NOUNS: Final = _words("numbered_nouns")
PLACES: Final = frozenset().union(*map(_phrases, ("countries", "regions", "cities")))
AMBIGUOUS_PLACES: Final = frozenset(_phrases("ambiguous_places"))
PLACE_NOUNS: Final = _words("place_nouns")
PLACE_NOUNS_BEFORE_OF: Final = _words("place_nouns_before_of")
GIVEN_NAMES: Final = _words("given_names")
AMBIGUOUS_GIVEN_NAMES: Final = _words("ambiguous_given_names")
NAME_PARTICLES: Final = _phrases("name_particles")
# In a German text they begin the next name, unless another one stands before them.
NAME_ARTICLES: Final = ("der", "den")
ORGANISATIONS: Final = frozenset(_phrases("organisations"))
UNSURE_ORGANISATIONS: Final = frozenset(_phrases("unsure_organisations"))
PRODUCTS: Final = frozenset(_phrases("products"))
UNSURE_PRODUCTS: Final = frozenset(_phrases("unsure_products"))
GERMAN_FREQUENT_WORDS: Final = _words("german_frequent_words")
GERMAN_FIRST_WORDS: Final = _words("german_first_words")
GERMAN_NUMBERED_NOUNS: Final = _words("german_numbered_nouns")
NAME_WORDS: Final = _words("name_words")

# Type and weight, then phrases with semicolons between them.
CueRow = tuple[str, float, str]
CUES_BEFORE: Final[tuple[CueRow, ...]] = tuple(map(tuple, _LISTS["before"]))
CUES_AFTER: Final[tuple[CueRow, ...]] = tuple(map(tuple, _LISTS["after"]))
