"""What several tools of one server repeat, so that it is said once and not with each."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.slim.flat import secondary
from headgate.catalog.slim.reading import read
from headgate.catalog.slim.wording import sentences

# Fewer tools than this have nothing in common that is worth a sentence.
_FEWEST_TOOLS: Final = 5
# A sentence of such a part of the tools does not tell them apart; one of such a part is worth saying.
_REPEATED: Final = 0.1
_SAID_ONCE: Final = 0.3
_MOST_ARGUMENTS: Final = 10
_LONGEST_NAME: Final = 32
# Of an argument.
_LONGEST_TEXT: Final = 1_000
# Bytes of a definition: to read a larger one once more takes longer than its words are worth.
_LONGEST_READ: Final = 256 * 1024
_SENTENCE_LENGTHS: Final = range(20, 160)
_LONGEST_SAID: Final = 400
# For the words between them.
_SPACE: Final = 40


class Shared(msgspec.Struct, frozen=True):
    """What need not be said with each tool of one server, and the text that says it once."""

    # Sentences about tools and texts about arguments that tell no tool apart.
    repeated: frozenset[str] = frozenset()
    # The most common first.
    arguments: tuple[str, ...] = ()
    said: str = ""


NOTHING_SHARED: Final = Shared()


def shared(definitions: Sequence[bytes]) -> Shared:
    """What the tools of one server repeat; the same for any order of them."""
    if len(definitions) < _FEWEST_TOOLS:
        return NOTHING_SHARED
    spoken: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    for definition in definitions:
        tool = read(definition) if len(definition) <= _LONGEST_READ else None
        if tool is not None:
            spoken.update(set(sentences(tool.text)))
            taken.update(secondary(tool.inputSchema))
            explained.update(_argument_texts(tool.inputSchema))
    count = len(definitions)
    often = max(_FEWEST_TOOLS, count * _REPEATED)
    repeated = _at_least(spoken, often)
    worth_saying = [one for one in repeated if spoken[one] >= count * _SAID_ONCE]
    common = [
        one for one in _at_least(taken, count // 2 + 1) if len(one) <= _LONGEST_NAME and one.isprintable()
    ]
    common = common[:_MOST_ARGUMENTS]
    told_of_none = frozenset([*repeated, *_at_least(explained, often)])
    return Shared(told_of_none, tuple(common), _said(worth_saying, common))


def _argument_texts(schema: Any) -> set[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.values() if isinstance(properties, dict) else ()
    texts = (one.get("description") for one in found if isinstance(one, dict))
    return {text for text in texts if isinstance(text, str) and len(text) <= _LONGEST_TEXT}


def _at_least(counted: Counter[str], times: float) -> list[str]:
    """What is there so often, the most frequent first."""
    found = [one for one, count in counted.items() if count >= times]
    return sorted(found, key=lambda one: (-counted[one], one))


def _said(repeated: list[str], common: list[str]) -> str:
    arguments = f"Most tools also take {', '.join(common)}." if common else ""
    told: list[str] = []
    for sentence in repeated:
        # Not cut, because half a sentence may say the opposite of the whole one.
        whole = len(sentence) in _SENTENCE_LENGTHS and not sentence.endswith(":")
        if whole and len(arguments) + sum(map(len, told)) + len(sentence) + _SPACE <= _LONGEST_SAID:
            told.append(sentence)
    spoken = f"Of many tools: {'. '.join(told)}." if told else ""
    return " ".join(part for part in (arguments, spoken) if part)
