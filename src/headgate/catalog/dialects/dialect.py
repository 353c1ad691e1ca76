"""The dialects of JSON Schema that clients read, and which client needs which."""

from enum import StrEnum
from typing import Final


class Dialect(StrEnum):
    """A part of JSON Schema that some model provider takes."""

    PLAIN = "plain"
    GEMINI = "gemini"
    # What OpenAI calls strict.
    OPENAI = "openai"


# Clients that hand a schema on to a provider that refuses parts of it; docs/decisions/0026 has the evidence.
_BY_NAME: Final = {"antigravity-client": Dialect.GEMINI}
# The name goes on with that of the server; the releases that write it so leave out tools they cannot read.
_BY_BEGINNING: Final = {"gemini-cli-mcp-client-": Dialect.GEMINI}


def dialect_of(client_name: str) -> Dialect:
    """What a client of that `clientInfo.name` needs: PLAIN unless it is known to need something else."""
    for beginning, dialect in _BY_BEGINNING.items():
        if client_name.startswith(beginning):
            return dialect
    return _BY_NAME.get(client_name, Dialect.PLAIN)
