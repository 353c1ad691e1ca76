"""Brackets of a JSON text counted in bulk, without parsing: strings are blanked out by plain replacement."""

from itertools import accumulate

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def mask_escapes(text: bytes) -> bytes:
    """`text` with the same length in which every quote begins or ends a string."""
    # Pairs of backslashes first, so that the second of a pair is not taken for the escape of a quote.
    return text.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in text else text


def outside_strings(masked: bytes) -> tuple[bytes, bool]:
    """What stands outside of strings, and whether the text ends inside one."""
    parts = masked.split(b'"')
    return b"".join(parts[::2]), len(parts) % 2 == 0


def levels(bare: bytes, depth: int) -> list[int]:
    """The depth before the text and after each of its brackets."""
    return list(accumulate(map(_STEP.__getitem__, bare.translate(None, _NOT_BRACKETS)), initial=depth))


def step(bracket: int) -> int:
    """How one bracket changes the depth."""
    return _STEP[bracket]
