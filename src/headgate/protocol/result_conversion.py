"""Converts results between the two protocol eras; everything that the server put into a result stays."""

import re
from collections.abc import Callable, Iterable

import msgspec
from msgspec import DecodeError, Raw

from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.protocol_version import CONNECTION_KEYS, META_PREFIX

COMPLETE = b'"resultType":"complete"'
INPUT_REQUIRED = b'"input_required"'
# The members of the stateless era for a result that must not be cached.
UNCACHED = b'"ttlMs":0,"cacheScope":"private"'
_MARK = META_PREFIX.encode()
# Finds a true `isError` at any depth of a result; runs for every result.
claims_error = re.compile(rb'"isError"\s*+:\s*+true').search


class _IsErrorFlag(msgspec.Struct):
    isError: bool = False  # noqa: N815 (the protocol's spelling)


class ResultNeedsInput(ValueError):
    """A result that a client of the handshake era does not know."""


def to_stateless(result: bytes, opening: bytes = COMPLETE) -> bytes:
    """A handshake server's result for a stateless client, with its `resultType`."""
    rest = result[1:].lstrip()
    if b'"resultType"' in result and "resultType" in _members(result):
        return result
    return b"{" + opening + (b"," if rest[:1] != b"}" else b"") + result[1:]


def to_handshake(result: bytes, *, hints: bool = False) -> bytes:
    """A stateless server's result for a handshake client, without `resultType` and connection keys.

    `hints` says that it may tell how long it can be kept, which such a client does not know either.
    """
    plain = _MARK not in result and b'"structuredContent"' not in result and not hints
    if plain and result.startswith(b"{" + COMPLETE + b","):
        return b"{" + result[len(COMPLETE) + 2 :]
    if plain and b'"resultType"' not in result:
        return result
    members = _members(result)
    if not members:
        return result
    kind = members.pop("resultType", Raw(b'"complete"'))
    if bytes(kind) != b'"complete"':
        raise ResultNeedsInput(bytes(kind).decode())
    if bytes(members.get("structuredContent", b"{"))[:1] != b"{":
        # Only objects are allowed in this era; the text has the same content.
        del members["structuredContent"]
    if hints:
        members.pop("ttlMs", None)
        members.pop("cacheScope", None)
    _drop_connection_keys(members)
    return encode_object(members)


def without_connection_keys(result: bytes) -> bytes:
    """A stateless server's result for a stateless client, without connection keys of the server."""
    members = _members(result) if _MARK in result else {}
    if not members:
        return result
    _drop_connection_keys(members)
    return encode_object(members)


def _members(result: bytes) -> dict[str, Raw]:
    """The members of a result; empty if it is nested too deep, and so stays as it is."""
    try:
        return decode_object(result)
    except RecursionError:
        return {}


def _drop_connection_keys(members: dict[str, Raw]) -> None:
    try:
        meta = decode_object(members.get("_meta", b"null"))
    except DecodeError:
        return
    kept = {key: value for key, value in meta.items() if key not in CONNECTION_KEYS}
    if len(kept) == len(meta):
        return
    if kept:
        members["_meta"] = Raw(encode_object(kept))
    else:
        members.pop("_meta")


def is_input_required(result: bytes) -> bool:
    """Whether a result of the stateless era requires input before the call goes on."""
    if INPUT_REQUIRED not in result:
        return False
    try:
        return bytes(decode_object(result).get("resultType", b"")) == INPUT_REQUIRED
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False


def is_tool_error(result: bytes) -> bool:
    """Whether a tool reports a failure; only a result with a true `isError` anywhere is parsed."""
    if not claims_error(result):
        return False
    try:
        return msgspec.json.decode(result, type=_IsErrorFlag).isError
    except (DecodeError, UnicodeDecodeError, RecursionError):
        # It has the member and cannot be parsed.
        return True


def with_resource_uri(result: bytes, name: str, public_name: str) -> bytes:
    """The contents of a resource under the URI that the client requested."""
    try:
        members = decode_object(result)
        contents = msgspec.json.decode(members.get("contents", b"null"), type=list[dict[str, Raw]])
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return result
    for content in contents:
        if _is_text(content.get("uri", Raw(b"null")), name):
            content["uri"] = Raw(msgspec.json.encode(public_name))
    members["contents"] = Raw(_array(map(encode_object, contents)))
    return encode_object(members)


def _is_text(value: Raw, text: str) -> bool:
    try:
        return msgspec.json.decode(value, type=str) == text
    except (DecodeError, UnicodeDecodeError):
        return False


def with_public_uris(result: bytes, public: Callable[[str], str]) -> bytes:
    """A result of a tool or a prompt with public URIs in its links and embedded resources."""
    if b'"uri"' not in result:
        return result
    try:
        members = decode_object(result)
        renamed_blocks = {
            key: blocks
            for key in ("content", "messages")
            if key in members
            and (blocks := _blocks_with_public_uris(members[key], public)) is not members[key]
        }
    except (DecodeError, UnicodeDecodeError, RecursionError):
        # Clients cannot parse it either.
        return result
    return encode_object(members | renamed_blocks) if renamed_blocks else result


def _blocks_with_public_uris(raw: Raw, public: Callable[[str], str]) -> Raw:
    """Content blocks, or messages around them; the same bytes if no URI in them is renamed."""
    blocks = msgspec.json.decode(raw, type=list[Raw])
    renamed_blocks = [_block_with_public_uri(block, public) for block in blocks]
    if all(new is old for new, old in zip(renamed_blocks, blocks, strict=True)):
        return raw
    return Raw(_array(map(bytes, renamed_blocks)))


def _block_with_public_uri(raw: Raw, public: Callable[[str], str]) -> Raw:
    block = decode_object(raw)
    changed = False
    if "uri" in block:
        uri = msgspec.json.decode(block["uri"], type=str)
        if public(uri) != uri:
            block["uri"], changed = Raw(msgspec.json.encode(public(uri))), True
    for key in ("resource", "content"):
        inner = block.get(key)
        if inner is not None and bytes(inner)[:1] == b"{":
            block[key] = _block_with_public_uri(inner, public)
            changed = changed or block[key] is not inner
    return Raw(encode_object(block)) if changed else raw


def _array(elements: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"


def tool_error_result(text: str, meta: dict[str, object], details: str = "") -> bytes:
    """A tool result with an error message, and `details` as a block of their own."""
    content = [{"type": "text", "text": each} for each in (text, details) if each or each is text]
    return msgspec.json.encode({"content": content, "isError": True, "_meta": meta})
