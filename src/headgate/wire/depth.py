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
    masked = mask_escapes(text)
    depth, in_string = 0, False
    for start in range(0, len(masked), _SLICE):
        part = masked[start : start + _SLICE]
        # A string that is open goes on.
        bare, in_string = outside_strings(b'"' + part if in_string else part)
        seen = levels(bare, depth)
        depth = seen[-1]
        yield max(seen)
