"""What each era wants a result to look like; everything that an upstream put into it stays."""

import msgspec
from msgspec import DecodeError, Raw

from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.eras import META_PREFIX

COMPLETE = b'"resultType":"complete"'
_MARK = META_PREFIX.encode()


class NeedsInput(ValueError):
    """A result that asks for something a handshake client was never told about."""


def for_stateless(result: bytes) -> bytes:
    """A handshake server's result for a stateless client: it says that it is complete."""
    rest = result[1:].lstrip()
    if b'"resultType"' in result and "resultType" in _members(result):
        return result
    return b"{" + COMPLETE + (b"," if rest[:1] != b"}" else b"") + result[1:]


def for_handshake(result: bytes) -> bytes:
    """A stateless server's result for a handshake client, which knows neither types nor connection keys."""
    plain = _MARK not in result and b'"structuredContent"' not in result
    if plain and result.startswith(b"{" + COMPLETE + b","):
        return b"{" + result[len(COMPLETE) + 2 :]
    if plain and b'"resultType"' not in result:
        return result
    members = _members(result)
    if not members:
        return result
    kind = members.pop("resultType", Raw(b'"complete"'))
    if bytes(kind) != b'"complete"':
        raise NeedsInput(bytes(kind).decode())
    if bytes(members.get("structuredContent", b"{"))[:1] != b"{":
        # Only objects are legal in this era; the text says the same.
        del members["structuredContent"]
    _drop_connection_keys(members)
    return encode_object(members)


def without_connection_keys(result: bytes) -> bytes:
    """A stateless server's result for a stateless client: the server's name is the gateway's business."""
    if _MARK not in result:
        return result
    members = _members(result)
    if not members:
        return result
    _drop_connection_keys(members)
    return encode_object(members)


def _members(result: bytes) -> dict[str, Raw]:
    """The members of a result; none when it is nested too deep to be opened, and so stays as it is."""
    try:
        return decode_object(result)
    except RecursionError:
        return {}


def _drop_connection_keys(members: dict[str, Raw]) -> None:
    try:
        meta = decode_object(members.get("_meta", b"null"))
    except DecodeError:
        return
    kept = {key: value for key, value in meta.items() if not key.startswith(META_PREFIX)}
    if kept:
        members["_meta"] = Raw(encode_object(kept))
    else:
        members.pop("_meta")


def text_failure(text: str, meta: dict[str, object]) -> bytes:
    """A tool result that says what went wrong."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": True, "_meta": meta})
