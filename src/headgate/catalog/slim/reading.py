"""Reads of a definition what its small forms are made of."""

from typing import Any

import msgspec
from msgspec import DecodeError


class Tool(msgspec.Struct):
    """Members mostly of any type, so that one that is odd does not cost the others."""

    name: str
    description: Any = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)
    annotations: Any = None

    @property
    def text(self) -> str:
        """What the tool says about itself."""
        return self.description if isinstance(self.description, str) else ""


_decoder = msgspec.json.Decoder(Tool)


def read(definition: bytes) -> Tool | None:
    """The tool, or None where the definition cannot be read."""
    try:
        return _decoder.decode(definition)
    except (DecodeError, UnicodeError, RecursionError):
        return None
