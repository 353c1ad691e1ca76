"""A description in a few words: those that tell the tool apart from others."""

import re
from collections.abc import Collection, Iterator
from typing import Final

# More of a description is not looked at.
_LONGEST_READ: Final = 1_000
_MOST_SENTENCES: Final = 12
# Numbers of points and the like are shorter.
_SHORTEST: Final = 4
# A first sentence that is shorter leaves room for the next one.
_FEW: Final = 20
_ARTICLE: Final = re.compile(r"\b(?:the|an?) (?=\w)", re.IGNORECASE)
# Where a text about arguments, results or examples begins.
_SECTION: Final = re.compile(
    r"\n[ \t#*-]*(?:args?|arguments|parameters|params|returns?|raises|examples?|usage|notes?|workflow)[ *]*:",
    re.IGNORECASE,
)
# Behind a sentence that is not an abbreviation's, between paragraphs and points of a list, before a remark.
# It begins with what is rare in a text, which makes it several times as fast.
_END: Final = re.compile(
    r"[.!?\s\u3002](?:(?<=\u3002)|(?<=[.!?])(?<!\b[eEiI]\.[ge]\.)(?<!\bvs\.)(?<!\betc\.)\s"
    r"|(?<=\n)[ \t]*[\n*#-]|(?=\([A-Z][a-z]+ ))"
)
# What stands for something to fill in, as <path> does, is no markup.
_MARKUP: Final = re.compile(
    r"[*`#\\]+|</?(?:b|i|em|strong|code|pre|br|p|ul|ol|li|h[1-6]|tt|u)(?: ?/)?>", re.IGNORECASE
)
# Without this word an old tool cannot be told from the new one.
_DEPRECATED: Final = re.compile(r"\bdeprecated\b", re.IGNORECASE)
_OLD: Final = "Deprecated. "
_FILLER: Final = re.compile(
    r"(?:use )?(?:(?:this|the|an?) )?(?:mcp )?(?:tool|function|command|endpoint|operation|api) "
    r"(?:(?:that|which|is|can|be|used|designed|will|allows?|enables?|lets?|helps?|you|users?|to|for) )+"
    r"|(?:allows?|enables?|lets?) (?:you|users?|the user) to ",
    re.IGNORECASE,
)


def sentences(description: str) -> Iterator[str]:
    """The sentences of a description, without markup and without sections about arguments and results."""
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


def told_briefly(description: str, longest: int, said: Collection[str] = ()) -> str:
    """What is left of a description in so many characters, without sentences that were said elsewhere."""
    told = ""
    if _DEPRECATED.search(description, 0, _LONGEST_READ):
        return _OLD + told_briefly(
            _DEPRECATED.sub("", description[:_LONGEST_READ]), longest - len(_OLD), said
        )
    for sentence in sentences(description):
        if sentence in said:
            continue
        short = _ARTICLE.sub("", _without_filler(sentence))
        if not told:
            told = cut(short, longest)
        elif len(told) + len(short) + 2 <= longest:
            told = f"{told}. {short}"
        if len(told) >= _FEW:
            break
    return told


def _without_filler(sentence: str) -> str:
    """The sentence without the words by which many begin and which say nothing."""
    filler = _FILLER.match(sentence)
    return sentence if filler is None else sentence[filler.end() :] or sentence


def cut(text: str, longest: int) -> str:
    """As many whole words as fit, and a sign that there are more; never more bytes than the text has."""
    if len(text) <= longest:
        return text
    # The sign is three bytes long.
    return text[: longest - 3].rsplit(" ", 1)[0].rstrip(" ,;:(") + "…"
