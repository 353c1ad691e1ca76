"""What a server says about itself is taken at its word, and nonsense is taken for nothing."""

import pytest

from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from headgate.upstream.handshake import NegotiationResult


def greeting(capabilities: bytes, version: str = "2025-11-25") -> NegotiationResult:
    return NegotiationResult(version, capabilities)


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        (b'{"tools":{}}', {ItemKind.TOOLS}),
        (b'{"prompts":{"listChanged":true}}', {ItemKind.PROMPTS}),
        (b'{"resources":{}}', {ItemKind.RESOURCES, ItemKind.TEMPLATES}),
        (b'{"tools":{},"prompts":{},"resources":{}}', set(ItemKind)),
        (b'{"logging":{}}', set()),
        (b'{"tools":null,"prompts":{}}', {ItemKind.PROMPTS}),
        # It says nothing at all, so it is worth a try.
        (b"{}", {ItemKind.TOOLS}),
        (b"", {ItemKind.TOOLS}),
        (b"[]", {ItemKind.TOOLS}),
        (b"nonsense", {ItemKind.TOOLS}),
        (b'{"\xff":1}', {ItemKind.TOOLS}),
        (b"[" * 5000 + b"]" * 5000, {ItemKind.TOOLS}),
    ],
)
def test_a_server_offers_the_kinds_that_it_declares(capabilities: bytes, kinds: set[ItemKind]) -> None:
    assert {kind for kind in ItemKind if greeting(capabilities).offers(kind)} == kinds


@pytest.mark.parametrize("value", [b"false", b'"true"', b"1", b"null", b"{}"])
def test_a_feature_is_there_only_when_it_is_true(value: bytes) -> None:
    said = greeting(b'{"tools":{"listChanged":%s},"resources":{"subscribe":%s}}' % (value, value))
    assert not said.notifies_list_changed("tools")
    assert not said.supports_subscribe


def test_features_are_told_apart() -> None:
    said = greeting(b'{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}')
    assert said.notifies_list_changed("tools")
    assert not said.notifies_list_changed("resources")
    assert said.supports_subscribe
    assert said.supports_logging
    assert not greeting(b'{"tools":{}}').supports_logging


@pytest.mark.parametrize(
    ("version", "era"),
    [("2024-11-05", Era.HANDSHAKE), ("2025-11-25", Era.HANDSHAKE), ("2026-07-28", Era.STATELESS)],
)
def test_the_version_says_the_era(version: str, era: Era) -> None:
    assert greeting(b"{}", version).era is era
