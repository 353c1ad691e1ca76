"""Header values of the stateless era: text that does not fit into a header travels as base64."""

import base64
import binascii
import re

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def encode_value(text: str) -> bytes:
    """`text` as a header value that every HTTP implementation hands on unchanged."""
    looks_wrapped = text.startswith("=?base64?") and text.endswith("?=")
    if _PLAIN.fullmatch(text) and not looks_wrapped:
        return text.encode("ascii")
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


def decode_value(value: bytes) -> str | None:
    """The text of a header value, or None when it is not well-formed."""
    text = value.decode("latin-1")
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        payload = base64.b64decode(wrapped[1], validate=True)
        # Two spellings of one value would let a header and a body disagree unseen.
        if base64.b64encode(payload).decode() != wrapped[1]:
            return None
        return payload.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
