"""How deep a JSON text is nested, measured without parsing it and without stalling on a large one."""

import re
from collections.abc import Iterator
from itertools import accumulate

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
# Brackets looked at between two chances for other work: about 2 ms.
_SLICE = 50_000


def shallow(text: bytes, limit: int) -> bool:
    """Whether `text` cannot be deeper than `limit`, because it has no more opening brackets than that."""
    return text.count(b"{") + text.count(b"[") <= limit


def depths(text: bytes) -> Iterator[int]:
    """The greatest depth of each successive slice of `text`, for a caller that pauses between them."""
    brackets = _STRINGS.sub(b"", text).translate(None, _NOT_BRACKETS)
    depth = 0
    for start in range(0, len(brackets), _SLICE):
        levels = list(accumulate(map(_STEP.__getitem__, brackets[start : start + _SLICE]), initial=depth))
        depth = levels[-1]
        yield max(levels)
