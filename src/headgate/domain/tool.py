"""One tool of one upstream: how it was defined there, and how the gate routes to it."""

import msgspec


class Definition(msgspec.Struct, frozen=True):
    """A tool's definition as text, and where in it the value of its name stands."""

    text: str
    name_start: int
    name_end: int

    def named(self, public_name: str) -> bytes:
        """The definition under another name, every other byte as it came."""
        quoted = msgspec.json.encode(public_name).decode()
        return (self.text[: self.name_start] + quoted + self.text[self.name_end :]).encode()


class UpstreamTool(msgspec.Struct, frozen=True):
    """A tool as its upstream defined it."""

    name: str
    definition: Definition
    # For clients of the handshake era, where they could not read the definition as it is.
    handshake_definition: Definition | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool as clients see it: whose it is, what it is called there and here, and its definition."""

    server: str
    name: str
    public_name: str
    definition: bytes
    handshake_definition: bytes


def published(server: str, tool: UpstreamTool, public_name: str) -> Tool:
    """The tool under its public name."""
    definition = tool.definition.named(public_name)
    handshake = tool.handshake_definition
    return Tool(
        server, tool.name, public_name, definition, handshake.named(public_name) if handshake else definition
    )
