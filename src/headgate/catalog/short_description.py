"""Shortens the description of a tool to its distinctive words, with a few keywords of its arguments."""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

from headgate.search.text_analysis import WEAK_STOP_WORDS

# Characters of a description; the rest is ignored.
_LONGEST_READ: Final = 1_000
_MOST_SENTENCES: Final = 12
# Anything shorter is a list number or the like.
_SHORTEST: Final = 4
# After a shorter first sentence there is room for the next one.
_FEW: Final = 20
_ARTICLE: Final = re.compile(r"\b(?:the|an?) (?=\w)", re.IGNORECASE)
# The start of a section on arguments, results or examples.
_SECTION: Final = re.compile(
    r"\n[ \t#*-]*(?:args?|arguments|parameters|params|returns?|raises|examples?|usage|notes?|workflow)[ *]*:",
    re.IGNORECASE,
)
# After a sentence that is no abbreviation, between paragraphs and list items, before a remark. The pattern
# begins with a rare character, which makes it several times as fast.
_END: Final = re.compile(
    r"[.!?\s\u3002](?:(?<=\u3002)|(?<=[.!?])(?<!\b[eEiI]\.[ge]\.)(?<!\bvs\.)(?<!\betc\.)\s"
    r"|(?<=\n)[ \t]*[\n*#-]|(?=\([A-Z][a-z]+ ))"
)
# A placeholder such as <path> is no markup.
_MARKUP: Final = re.compile(
    r"[*`#\\]+|</?(?:b|i|em|strong|code|pre|br|p|ul|ol|li|h[1-6]|tt|u)(?: ?/)?>", re.IGNORECASE
)
# Without this word an old tool cannot be distinguished from the new one.
_DEPRECATED: Final = re.compile(r"\bdeprecated\b", re.IGNORECASE)
_DEPRECATED_PREFIX: Final = "Deprecated. "
_FILLER: Final = re.compile(
    r"(?:use )?(?:(?:this|the|an?) )?(?:mcp )?(?:tool|function|command|endpoint|operation|api) "
    r"(?:(?:that|which|is|can|be|used|designed|will|allows?|enables?|lets?|helps?|you|users?|to|for) )+"
    r"|(?:allows?|enables?|lets?) (?:you|users?|the user) to ",
    re.IGNORECASE,
)


def sentences(description: str) -> Iterator[str]:
    """The sentences of a description, without markup and without sections on arguments and results."""
    text = description[:_LONGEST_READ].strip()
    section = _SECTION.search(text)
    end = section.start() if section is not None else len(text)
    start = count = 0
    while start < end and count < _MOST_SENTENCES:
        found = _END.search(text, start, end)
        stop = found.end() if found is not None else end
        sentence = " ".join(_MARKUP.sub("", text[start:stop]).split()).strip(" .-\u3002")
        if sentence.startswith("("):
            sentence = sentence.strip("().")
        if len(sentence) >= _SHORTEST or stop - start == len(text):
            yield sentence
        start = stop
        count += 1


def shorten_description(description: str, longest: int, repeated: Collection[str] = ()) -> str:
    """The description in at most `longest` characters, without sentences in `repeated`."""
    shortened = ""
    if _DEPRECATED.search(description, 0, _LONGEST_READ):
        return _DEPRECATED_PREFIX + shorten_description(
            _DEPRECATED.sub("", description[:_LONGEST_READ]), longest - len(_DEPRECATED_PREFIX), repeated
        )
    for sentence in sentences(description):
        if sentence in repeated:
            continue
        # Many have a meaningless beginning.
        filler = _FILLER.match(sentence)
        short = _ARTICLE.sub("", (sentence[filler.end() :] if filler else "") or sentence)
        if not shortened:
            shortened = truncate_words(short, longest)
        elif len(shortened) + len(short) + 2 <= longest:
            shortened = f"{shortened}. {short}"
        if len(shortened) >= _FEW:
            break
    return shortened


def truncate_words(text: str, longest: int) -> str:
    """As many whole words as fit, and an ellipsis; never more bytes than the text has."""
    if len(text) <= longest:
        return text
    # The ellipsis has three bytes.
    return text[: longest - 3].rsplit(" ", 1)[0].rstrip(" ,;:(") + "…"


_MOST_WORDS: Final = 3
_MOST_ARGUMENTS: Final = 12
_MOST_CHOICES: Final = 8
# Of the text of one argument.
_LONGEST_ARGUMENT_TEXT: Final = 240
_LONGEST_WORD: Final = 24
# Mostly followed by one of many possible values, which show what the tool is about.
_BEFORE_EXAMPLES: Final = ("e.g.", "such as ", "for example", "one of ", "including ", "like ", "(", ": ")
# After a bracket or a colon, several names at once are examples.
_SEVERAL: Final = re.compile(r"\W*\w+\W{0,2}(?:,|/|\||\bor\b)")
_WORD: Final = re.compile(r"[^\W\d_][^\W_]{3,}")
# They occur in texts about arguments of any kind.
# fmt: off
_GENERIC_WORDS: Final = WEAK_STOP_WORDS | frozenset([
    "also", "argument", "array", "boolean", "case", "characters", "contain", "contains", "date", "days",
    "default", "defaults", "desc", "display", "empty", "example", "false", "field", "fields", "format",
    "formats", "from", "hours", "http", "https", "identifier", "integer", "item", "items", "json",
    "list", "maximum", "minimum", "minutes", "must", "name", "names", "none", "null", "number",
    "object", "omit", "only", "option", "optional", "options", "path", "required", "returns", "seconds",
    "should", "string", "strings", "that", "their", "then", "this", "time", "true", "type", "types",
    "uuid", "value", "values", "when", "where", "which", "will", "with", "your", "yyyy"
])
# fmt: on


def argument_keywords(
    arguments: Collection[Any], known: str, room: int, repeated: Collection[str] = ()
) -> str:
    """Up to three words that are not in `known`, within `room` characters and from texts not `repeated`."""
    seen = known.lower()
    found: list[str] = []
    for text in _texts(arguments, repeated):
        for word in _WORD.findall(text):
            plain = word.lower()
            if plain in _GENERIC_WORDS or len(plain) > _LONGEST_WORD or plain.removesuffix("s") in seen:
                continue
            room -= len(word) + 1
            if room < 0:
                return " ".join(found)
            found.append(word)
            if len(found) == _MOST_WORDS:
                return " ".join(found)
            seen = f"{seen} {plain}"
    return " ".join(found)


def _texts(arguments: Collection[Any], repeated: Collection[str]) -> Iterator[str]:
    for schema in islice(arguments, _MOST_ARGUMENTS):
        if not isinstance(schema, dict):
            continue
        text = schema.get("description")
        if isinstance(text, str) and text in repeated:
            continue
        if isinstance(text, str):
            yield _examples(text[:_LONGEST_ARGUMENT_TEXT])
        choices = schema.get("enum")
        if isinstance(choices, list):
            yield " ".join(
                one[:_LONGEST_ARGUMENT_TEXT] for one in choices[:_MOST_CHOICES] if isinstance(one, str)
            )


def _examples(text: str) -> str:
    """The text after a word that announces examples, up to the end of the sentence."""
    lower = text.lower()
    for mark in _BEFORE_EXAMPLES:
        at = lower.find(mark)
        if at >= 0:
            found = text[at + len(mark) :].partition(". ")[0]
            if len(mark) > 2 or _SEVERAL.match(found):
                return found.partition(")")[0]
    return ""
