"""Which promise is given for each tool: what the operator says, else what its server says of itself."""

import logging
from collections.abc import Callable, Iterable

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.care import PLAIN_CARE, Care, ServerCare, ToolClass
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.server import ServerSpec

log = logging.getLogger("headgate.delivery")


class _Annotations(msgspec.Struct, frozen=True, rename="camel"):
    read_only_hint: bool = False
    idempotent_hint: bool = False


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, Raw] = {}


class _Definition(msgspec.Struct):
    annotations: _Annotations = _Annotations()


class _Taking(msgspec.Struct, rename="camel"):
    input_schema: _Schema = _Schema()


class Promises:
    """What the operator wants of each server's calls."""

    def __init__(
        self,
        servers: Iterable[ServerSpec] = (),
        honours_keys: Callable[[str], bool] = lambda server: False,
    ) -> None:
        """`honours_keys` says whether a server told that it carries out one call for each key."""
        self._honours_keys = honours_keys
        self._cares: dict[str, ServerCare] = {}
        # Servers of which all that is not the default is in `tools` or `all`; nearly always none.
        self._special: frozenset[str] = frozenset()
        self.recording = False
        self._warned: set[tuple[str, str]] = set()
        self.apply(servers)

    def apply(self, servers: Iterable[ServerSpec]) -> None:
        """These are the servers now."""
        self._cares = {server.name: server.care for server in servers}
        self._special = frozenset(name for name, care in self._cares.items() if not care.is_plain)
        # Whether any tool at all has its calls recorded without a key; asked for every call.
        self.recording = any(
            said.ledger == "all" for care in self._cares.values() for said in (care.all, *care.tools.values())
        )

    def of_server(self, server: str) -> ServerCare:
        """How calls of a server are carried."""
        return self._cares.get(server, PLAIN_CARE)

    def special(self, item: Item) -> Care | None:
        """What the operator says of a tool; None where he says nothing of any tool of its server."""
        if item.server not in self._special or item.kind is not Kind.TOOLS:
            return None
        return self._cares[item.server].of(item.name)

    def records(self, item: Item) -> bool:
        """Whether every call of the tool is recorded, also without a key."""
        care = self.special(item)
        return care is not None and care.ledger == "all"

    def kind(self, item: Item) -> ToolClass:
        """What a second call would do; when in doubt, harm."""
        server = self.of_server(item.server)
        care = server.of(item.name)
        given_key = self._is_given_key(item, care)
        takes_key = given_key or self._honours_keys(item.server)
        if care.kind is ToolClass.KEYED:
            # Without a way to give it a key, the word alone would make it happen twice.
            return ToolClass.KEYED if takes_key else ToolClass.UNSAFE
        if care.kind is not None:
            return care.kind
        said = _annotated(item.definition) if server.trusts_annotations else ToolClass.UNSAFE
        if said is ToolClass.READ:
            # Also where the server's other tools take a key or have a probe.
            return said
        if given_key:
            return ToolClass.KEYED
        if care.probe is not None:
            return ToolClass.PROBEABLE
        # The word of a server that is not trusted counts as little as its annotations.
        if said is ToolClass.UNSAFE and takes_key and server.trusts_annotations:
            return ToolClass.KEYED
        return said

    def _is_given_key(self, item: Item, care: Care) -> bool:
        """Whether a key reaches the tool in the way that the operator says."""
        if care.key_header or not care.key_argument:
            return bool(care.key_header)
        if _may_take(item.definition, care.key_argument):
            return True
        # A typing mistake must not make calls happen twice.
        if (item.server, item.name) not in self._warned:
            self._warned.add((item.server, item.name))
            log.warning(
                "the tool has no such argument for a key, so its calls are not repeated",
                extra={"server": item.server, "tool": item.name, "argument": care.key_argument},
            )
        return False


def _may_take(definition: bytes, argument: str) -> bool:
    """Whether the tool may have such an argument; only a list of arguments without it says no."""
    try:
        known = msgspec.json.decode(definition or b"{}", type=_Taking).input_schema.properties
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return not known or argument in known


def _annotated(definition: bytes) -> ToolClass:
    """What a definition says of itself; nothing means the worst, as the protocol has it."""
    if b"Hint" not in definition:
        return ToolClass.UNSAFE
    try:
        hints = msgspec.json.decode(definition, type=_Definition).annotations
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return ToolClass.UNSAFE
    if hints.read_only_hint:
        return ToolClass.READ
    return ToolClass.IDEMPOTENT if hints.idempotent_hint else ToolClass.UNSAFE
