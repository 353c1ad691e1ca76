"""How long a listing may be kept by others, and by whom."""

from collections.abc import Iterable

import msgspec


class CacheHint(msgspec.Struct, frozen=True):
    """What a server says of its own answer; nothing said means that it must not be kept."""

    ttl_ms: int = 0
    # Whether it may be shown to somebody other than who asked for it.
    public: bool = False


NO_HINT = CacheHint()
# Of a server that has nothing of a kind and so does not shorten the life of what others have.
NOTHING_TO_KEEP = CacheHint(24 * 3600 * 1000, public=True)


def strictest(hints: Iterable[CacheHint]) -> CacheHint:
    """What holds for an answer that was put together from several; NO_HINT when there are none."""
    known = [hint for hint in hints if hint is not NOTHING_TO_KEEP]
    if not known:
        return NO_HINT
    return CacheHint(min(hint.ttl_ms for hint in known), all(hint.public for hint in known))
