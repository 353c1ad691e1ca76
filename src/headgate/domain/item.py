"""One tool, prompt, resource or template of one upstream: how it was defined there, and how to get there."""

import msgspec

from headgate.domain.kind import Kind


class Definition(msgspec.Struct, frozen=True):
    """A definition as text, and where in it the value of its key stands."""

    text: str
    key_start: int
    key_end: int

    def called(self, public_name: str) -> bytes:
        """The definition under another name, every other byte as it came."""
        quoted = msgspec.json.encode(public_name).decode()
        return (self.text[: self.key_start] + quoted + self.text[self.key_end :]).encode()


class Mirror(msgspec.Struct, frozen=True):
    """An argument of a tool that HTTP requests repeat in a header."""

    # The names that lead to it, from the outside in.
    path: tuple[str, ...]
    # Without the `Mcp-Param-` before it.
    header: str


class Source(msgspec.Struct, frozen=True):
    """One item as its upstream defined it."""

    # Its name, or its URI.
    name: str
    definition: Definition
    # For clients of the handshake era, where they could not read the definition as it is.
    handshake_definition: Definition | None = None
    mirrors: tuple[Mirror, ...] = ()
    # Without the output schema, where the schema admits no notice of a truncated result.
    truncated_definition: Definition | None = None


class Item(msgspec.Struct, frozen=True):
    """One item as clients see it: whose it is, what it is called there and here, and its definition."""

    kind: Kind
    server: str
    name: str
    public_name: str
    definition: bytes = b""
    handshake_definition: bytes = b""
    mirrors: tuple[Mirror, ...] = ()


def published(kind: Kind, server: str, source: Source, public_name: str, *, truncated: bool = False) -> Item:
    """The item under its public name; `truncated` is whether its results may be."""
    shown, handshake = source.definition, source.handshake_definition
    if truncated and source.truncated_definition is not None:
        shown, handshake = source.truncated_definition, None
    definition = shown.called(public_name)
    return Item(
        kind,
        server,
        source.name,
        public_name,
        definition,
        handshake.called(public_name) if handshake else definition,
        source.mirrors,
    )
