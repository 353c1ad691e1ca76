"""Whether a tool is still what it was, for search and for whoever approved it."""

import hashlib
from typing import Any

import msgspec
from msgspec import DecodeError


class _Tool(msgspec.Struct):
    name: str = ""
    description: str | None = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)
    annotations: Any = None


def tool_hash(name: str, description: str | None, parameters: Any) -> str:
    """SHA-256 of name, description and parameters; none are `{}`, and the order of keys is nothing."""
    canonical = msgspec.json.encode(parameters if parameters is not None else {}, order="deterministic")
    digest = hashlib.sha256()
    for part in (name.encode(), (description or "").encode(), canonical):
        # Each with its length, so that nothing can move from one part to the next unseen.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


class Hashes(msgspec.Struct, frozen=True):
    """Both hashes of one tool."""

    # Name, description and parameters: what search looks at.
    search: str
    # These and the annotations: what a person looks at before the tool may be used.
    approval: str


def hashes(definition: bytes) -> Hashes:
    """The hashes of a tool as its server defined it; what no parser takes is hashed as it stands."""
    try:
        tool = msgspec.json.decode(definition, type=_Tool)
        search = tool_hash(tool.name, tool.description, tool.inputSchema)
        annotations = msgspec.json.encode(tool.annotations or {}, order="deterministic")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        whole = hashlib.sha256(definition).hexdigest()
        return Hashes(whole, whole)
    return Hashes(search, hashlib.sha256(search.encode() + annotations).hexdigest())


def definition_hash(definition: bytes) -> str:
    """The hash of what search looks at."""
    return hashes(definition).search
