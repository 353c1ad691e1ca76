"""How deep a JSON text is nested, measured without parsing it and without stalling on a large one."""

from collections.abc import Iterator

from headgate.wire.brackets import levels, mask_escapes, outside_strings

# Bytes looked at between two chances for other work: a few milliseconds.
_SLICE = 128 * 1024


def shallow(text: bytes, limit: int) -> bool:
    """Whether `text` cannot be deeper than `limit`, because it has no more opening brackets than that."""
    return text.count(b"{") + text.count(b"[") <= limit


def depths(text: bytes) -> Iterator[int]:
    """The greatest depth of each successive slice of `text`, for a caller that pauses between them."""
    bare, _ = outside_strings(mask_escapes(text))
    depth = 0
    for start in range(0, len(bare), _SLICE):
        seen = levels(bare[start : start + _SLICE], depth)
        depth = seen[-1]
        yield max(seen)
