"""What a server declares at the handshake: version, capabilities, instructions, rmcp features, gateways
behind it.
"""

import logging
from functools import cached_property
from typing import Any

import msgspec
from msgspec import DecodeError

from headgate.catalog.capabilities import shortened
from headgate.domain.delivery_request import FEATURES
from headgate.domain.gateway_chain import gateways_in_meta
from headgate.domain.item import ItemKind
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.protocol_version import Era, era_of
from headgate.protocol.rmcp import META, meta_names, shared_features, without_rmcp_capability

log = logging.getLogger("headgate.upstream")

# What clients are shown of one server's advice; real servers need a few thousand characters.
_LONGEST_INSTRUCTIONS = 16_384
# As much as a client may declare.
_MOST_CAPABILITY_BYTES = 16 * 1024


def negotiation_result_of(
    version: str, capabilities: bytes, instructions: str, meta: bytes = b"", server: str = ""
) -> "NegotiationResult":
    """What it says about itself, as far as is carried.

    That it speaks rmcp is kept apart, because that ends at the gateway.
    """
    shared, names = shared_features(capabilities, FEATURES), meta_names(capabilities)
    return NegotiationResult(
        version,
        _bounded_capabilities(without_rmcp_capability(capabilities), server),
        _bounded_instructions(instructions, server),
        shared,
        names,
        gateways_in_meta(meta),
    )


def _bounded_instructions(text: str, server: str) -> str:
    if len(text) <= _LONGEST_INSTRUCTIONS:
        return text
    log.warning("instructions cut", extra={"server": server, "characters": len(text)})
    return shortened(text, _LONGEST_INSTRUCTIONS)


def _bounded_capabilities(capabilities: bytes, server: str) -> bytes:
    """The members that fit, the smallest first; a client is promised nothing of the others."""
    if len(capabilities) <= _MOST_CAPABILITY_BYTES:
        return capabilities
    log.warning("capabilities cut", extra={"server": server, "bytes": len(capabilities)})
    try:
        members = decode_object(capabilities)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return b"{}"
    sizes = {key: len(key.encode()) + len(value) + 4 for key, value in members.items()}
    room, kept = _MOST_CAPABILITY_BYTES - 2, set()
    for key in sorted(sizes, key=lambda one: sizes[one]):
        room -= sizes[key]
        if room < 0:
            break
        kept.add(key)
    return encode_object({key: value for key, value in members.items() if key in kept})


class NegotiationResult(msgspec.Struct, frozen=True, dict=True):
    """The agreed version, what the upstream can do, and its advice to the model."""

    version: str
    capabilities: bytes = b"{}"
    instructions: str = ""
    # The features of rmcp that it shares with us; none when it does not speak it.
    rmcp: frozenset[str] = frozenset()
    # The names under which it is told of the delivery of a call.
    rmcp_names: tuple[str, ...] = (META,)
    # The instances of gateways behind it, itself included; none of a server that is no gateway.
    gateways: frozenset[str] = frozenset()

    @cached_property
    def era(self) -> Era:
        """Which rules it follows."""
        return era_of(self.version)

    def offers(self, kind: ItemKind) -> bool:
        """Whether it lists such things; one that says nothing at all about itself is asked for tools."""
        if kind is ItemKind.TOOLS and not self._declared:
            return True
        return isinstance(self._declared.get(kind.capability), dict)

    def notifies_list_changed(self, capability: str) -> bool:
        """Whether it tells when these change."""
        return self._declares(capability, "listChanged")

    @property
    def supports_subscribe(self) -> bool:
        """Whether it tells when a single resource changes."""
        return self._declares("resources", "subscribe")

    @property
    def supports_logging(self) -> bool:
        """Whether it sends log messages."""
        return isinstance(self._declared.get("logging"), dict)

    def _declares(self, capability: str, feature: str) -> bool:
        declared = self._declared.get(capability)
        return isinstance(declared, dict) and declared.get(feature) is True

    @cached_property
    def _declared(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.capabilities, type=dict[str, Any])
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return {}
