"""Cuts one JSON array into its elements without parsing them, for what no parser takes."""

import re

from headgate.wire.brackets import mask_escapes, step

_TOKENS = re.compile(rb'"[^"]*"?|[\[\]{},]')


def elements(array: bytes) -> list[bytes]:
    """The elements as they stand in the text; raises ValueError when it is no array."""
    masked = mask_escapes(array)
    depth, start, found = 0, -1, []
    for token in _TOKENS.finditer(masked):
        sign = masked[token.start()]
        if sign == ord('"'):
            continue
        if sign != ord(","):
            depth += step(sign)
        if depth == 1 and start < 0:
            start = token.end()
        elif (sign == ord(",") and depth == 1) or depth == 0:
            found.append(array[start : token.start()].strip())
            start = token.end()
        if depth == 0:
            break
    if depth != 0 or array.strip()[:1] != b"[" or array[start:].strip():
        raise ValueError("not an array")
    return found if found != [b""] else []
