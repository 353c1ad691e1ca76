"""How many tokens a text may have, as cheaply as that can be said: by what kinds of signs it is made of."""

from typing import Final

from headgate.responses.content import Content

# Tokens of o200k for each byte of a kind, fitted to logs, JSON, prose and code: words are long tokens, digits
# and punctuation short ones.
_WEIGHTS: Final = (
    (bytes(range(ord("a"), ord("z") + 1)), 0.176),
    (bytes(range(ord("A"), ord("Z") + 1)), 0.190),
    (b"0123456789", 0.632),
    (b" \t\r\n", 0.256),
    (bytes(range(0x80, 0x100)), 0.189),
)
_OTHERS: Final = 0.631
# Of a long text the beginning, the middle and the end are looked at.
_SAMPLE_BYTES: Final = 16 * 1024
# What a text of the least favourable kind, such as numbers, has at most in each token.
_CHARACTERS_PER_TOKEN: Final = 2.2


def tokens_of(content: Content | memoryview) -> int:
    """About so many tokens has the content; benchmarks count, this weighs a sample."""
    size = len(content)
    if size <= 3 * _SAMPLE_BYTES:
        return round(_weighed(bytes(content[:])))
    middle = (size - _SAMPLE_BYTES) // 2
    sample = b"".join(
        bytes(content[start : start + _SAMPLE_BYTES]) for start in (0, middle, size - _SAMPLE_BYTES)
    )
    return round(_weighed(sample) * size / len(sample))


def _weighed(sample: bytes) -> float:
    tokens, left = 0.0, len(sample)
    for kind, weight in _WEIGHTS:
        count = len(sample) - len(sample.translate(None, kind))
        tokens += count * weight
        left -= count
    return tokens + left * _OTHERS


def characters_of(tokens: int) -> int:
    """So many characters have hardly more than so many tokens."""
    return int(tokens * _CHARACTERS_PER_TOKEN)
