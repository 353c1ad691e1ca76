"""The delivery policy of each tool: what the operator configures, else what the server annotates."""

import logging
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw

from headgate.domain.item import Item, ItemKind
from headgate.domain.payload import decode_or
from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY, ToolClass, ToolSafety, UpstreamPolicy

log = logging.getLogger("headgate.delivery")


class _SafetyAnnotations(msgspec.Struct, frozen=True, rename="camel"):
    read_only_hint: bool = False
    idempotent_hint: bool = False


class _InputProperties(msgspec.Struct, frozen=True):
    properties: dict[str, Raw] = {}


class _AnnotatedDefinition(msgspec.Struct):
    annotations: _SafetyAnnotations = _SafetyAnnotations()


class _ToolInputDefinition(msgspec.Struct, rename="camel"):
    input_schema: _InputProperties = _InputProperties()


class DeliveryPolicy:
    def __init__(
        self, servers: Iterable[ServerSpec] = (), honours_keys: Callable[[str], bool] = lambda server: False
    ) -> None:
        """`honours_keys` tells whether a server declares that it executes one call per key."""
        self._honours_keys = honours_keys
        self._policies: dict[str, UpstreamPolicy] = {}
        # Servers with a policy for tools; nearly always none.
        self._configured_servers: frozenset[str] = frozenset()
        self.records_any_tool = False
        # Grows with every change, so that a policy in use is compared without a call.
        self.revision = 0
        self._warned: set[tuple[str, str]] = set()
        self.apply(servers)

    def apply(self, servers: Iterable[ServerSpec]) -> None:
        self.revision += 1
        self._policies = {server.name: server.policy for server in servers}
        self._configured_servers = frozenset(
            name for name, policy in self._policies.items() if not policy.is_default
        )
        # Whether calls of any tool are recorded without a key; an attribute, because every call reads it.
        self.records_any_tool = any(
            safety.ledger == "all"
            for policy in self._policies.values()
            for safety in (policy.all, *policy.tools.values())
        )

    def for_upstream(self, server: str) -> UpstreamPolicy:
        return self._policies.get(server, DEFAULT_UPSTREAM_POLICY)

    def configured_safety(self, item: Item) -> ToolSafety | None:
        """What the operator configures for a tool; None when no tool of its server is configured."""
        if item.server not in self._configured_servers or item.kind is not ItemKind.TOOLS:
            return None
        return self._policies[item.server].for_tool(item.name)

    def records_every_call(self, item: Item) -> bool:
        """Whether calls of the tool are recorded even without a key."""
        policy = self.configured_safety(item)
        return policy is not None and policy.ledger == "all"

    def tool_class(self, item: Item) -> ToolClass:
        """The class of a tool; UNSAFE unless it is known that a second call does no harm."""
        server = self.for_upstream(item.server)
        policy = server.for_tool(item.name)
        given_key = self._key_reaches_tool(item, policy)
        takes_key = given_key or self._honours_keys(item.server)
        if policy.kind is ToolClass.KEYED:
            # A tool that gets no key would execute a retry a second time.
            return ToolClass.KEYED if takes_key else ToolClass.UNSAFE
        if policy.kind is not None:
            return policy.kind
        annotated = _annotated_class(item.definition) if server.trusts_annotations else ToolClass.UNSAFE
        if annotated is ToolClass.READ:
            # Before keys and probes, which are configured for all tools of a server.
            return annotated
        if given_key:
            return ToolClass.KEYED
        if policy.probe is not None:
            return ToolClass.PROBEABLE
        # An untrusted server's claim to honour keys counts as little as its annotations.
        if annotated is ToolClass.UNSAFE and takes_key and server.trusts_annotations:
            return ToolClass.KEYED
        return annotated

    def _key_reaches_tool(self, item: Item, policy: ToolSafety) -> bool:
        """Whether the configured header or argument gives the tool a key."""
        if policy.key_header or not policy.key_argument:
            return bool(policy.key_header)
        definition = decode_or(item.definition or b"{}", _ToolInputDefinition, _ToolInputDefinition())
        # A schema that lists no argument may accept any.
        if policy.key_argument in (definition.input_schema.properties or (policy.key_argument,)):
            return True
        # A misspelt argument must not cause double execution.
        if (item.server, item.name) not in self._warned:
            self._warned.add((item.server, item.name))
            log.warning(
                "the tool has no such argument for a key, so its calls are not repeated",
                extra={"server": item.server, "tool": item.name, "argument": policy.key_argument},
            )
        return False


def _annotated_class(definition: bytes) -> ToolClass:
    """The class according to the annotations; without any it is UNSAFE, as in the MCP specification."""
    if b"Hint" not in definition:
        return ToolClass.UNSAFE
    hints = decode_or(definition, _AnnotatedDefinition, _AnnotatedDefinition()).annotations
    if hints.read_only_hint:
        return ToolClass.READ
    return ToolClass.IDEMPOTENT if hints.idempotent_hint else ToolClass.UNSAFE
