"""Whether a tool is still what it was: one hash over everything that search looks at."""

import hashlib
from typing import Any

import msgspec
from msgspec import DecodeError


class _Tool(msgspec.Struct):
    name: str = ""
    description: str | None = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)


def tool_hash(name: str, description: str | None, parameters: Any) -> str:
    """SHA-256 of name, description and parameters; none are `{}`, and the order of keys is nothing."""
    canonical = msgspec.json.encode(parameters if parameters is not None else {}, order="deterministic")
    digest = hashlib.sha256()
    for part in (name.encode(), (description or "").encode(), canonical):
        # Each with its length, so that nothing can move from one part to the next unseen.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def definition_hash(definition: bytes) -> str:
    """The hash of a tool as its server defined it; what no parser takes is hashed as it stands."""
    try:
        tool = msgspec.json.decode(definition, type=_Tool)
        return tool_hash(tool.name, tool.description, tool.inputSchema)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return hashlib.sha256(definition).hexdigest()
