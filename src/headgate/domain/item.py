"""One tool, prompt, resource or template: its kind, its upstream definition, and its public form."""

from enum import Enum

import msgspec


class ItemKind(Enum):
    """One kind of thing in a listing: the method that lists it, its member in the result, its key."""

    TOOLS = ("tools/list", "tools", "name", "tools")
    PROMPTS = ("prompts/list", "prompts", "name", "prompts")
    RESOURCES = ("resources/list", "resources", "uri", "resources")
    TEMPLATES = ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources")

    def __init__(self, list_method: str, member: str, key: str, capability: str) -> None:
        self.list_method = list_method
        # Where the list stands in the result.
        self.result_member = member
        # The member that identifies an item.
        self.key = key
        # Which capability of the server it belongs to.
        self.capability = capability

    @property
    def list_changed_method(self) -> str:
        """The notification for a changed list; templates belong to resources."""
        return f"notifications/{self.capability}/list_changed"


KIND_BY_LIST_METHOD = {kind.list_method: kind for kind in ItemKind}

# Which member of params names what a request is about; the Mcp-Name header repeats it.
NAME_PARAM_BY_METHOD = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class DefinitionText(msgspec.Struct, frozen=True):
    """A definition as text, and where in it the value of its key stands."""

    text: str
    key_start: int
    key_end: int

    def with_name(self, public_name: str) -> bytes:
        """The definition under another name, every other byte as it came."""
        quoted = msgspec.json.encode(public_name).decode()
        return (self.text[: self.key_start] + quoted + self.text[self.key_end :]).encode()


class ParamHeader(msgspec.Struct, frozen=True):
    """An argument of a tool that HTTP requests repeat in a header."""

    # The names that lead to it, from the outside in.
    path: tuple[str, ...]
    # Without the `Mcp-Param-` before it.
    header: str


class UpstreamItem(msgspec.Struct, frozen=True):
    """One item as its upstream defined it."""

    # Its name, or its URI.
    name: str
    definition: DefinitionText
    # For clients of the handshake era, where they could not read the definition as it is.
    handshake_definition: DefinitionText | None = None
    mirrored_parameters: tuple[ParamHeader, ...] = ()
    # Without the output schema, where the schema admits no notice of a truncated result.
    truncated_definition: DefinitionText | None = None


class Item(msgspec.Struct, frozen=True):
    """One item as clients see it: whose it is, what it is called there and here, and its definition."""

    kind: ItemKind
    server: str
    name: str
    public_name: str
    definition: bytes = b""
    handshake_definition: bytes = b""
    mirrored_parameters: tuple[ParamHeader, ...] = ()


def publish_item(
    kind: ItemKind, server: str, source: UpstreamItem, public_name: str, *, truncated: bool = False
) -> Item:
    """The item under its public name; `truncated` is whether its results may be."""
    listed, handshake = source.definition, source.handshake_definition
    if truncated and source.truncated_definition is not None:
        listed, handshake = source.truncated_definition, None
    definition = listed.with_name(public_name)
    return Item(
        kind,
        server,
        source.name,
        public_name,
        definition,
        handshake.with_name(public_name) if handshake else definition,
        source.mirrored_parameters,
    )
