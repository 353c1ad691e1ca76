"""One tool of one upstream, as the gate routes to it."""

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """A tool: whose it is, what it is called there and here, and its definition as we show it."""

    server: str
    name: str
    public_name: str
    # The upstream's own bytes with the public name put in.
    definition: bytes


class UpstreamTool(msgspec.Struct, frozen=True):
    """A tool as its upstream defined it: the text, and where in it the name stands."""

    name: str
    definition: str
    name_start: int
    name_end: int

    def named(self, public_name: str) -> bytes:
        """The definition under another name, every other byte as it came."""
        quoted = msgspec.json.encode(public_name).decode()
        return (self.definition[: self.name_start] + quoted + self.definition[self.name_end :]).encode()
