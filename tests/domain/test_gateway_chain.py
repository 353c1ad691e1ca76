"""What gateways say of themselves to those in front of and behind them."""

import json

import pytest

from headgate.domain.gateway_chain import (
    MAX_CHAIN_LENGTH,
    GatewayChain,
    GatewayIdentity,
    config_identity,
    gateways_in_meta,
    parse_chain,
)

A = GatewayIdentity("a" * 16, "1" * 16)
B = GatewayIdentity("b" * 16, "2" * 16)


def test_a_child_is_told_the_whole_chain() -> None:
    chain = GatewayChain(B, (A,))
    assert chain.environment == {"HEADGATE_CHAIN": f"{'a' * 16}/{'1' * 16},{'b' * 16}/{'2' * 16}"}
    assert parse_chain(chain.environment["HEADGATE_CHAIN"]) == (A, B)
    assert chain.via_header == b"via: 1.1 headgate-" + b"a" * 16 + b", 1.1 headgate-" + b"b" * 16 + b"\r\n"


def test_a_chain_repeats_where_a_configuration_comes_again() -> None:
    assert not GatewayChain(A).is_loop
    assert not GatewayChain(B, (A,)).is_loop
    assert GatewayChain(GatewayIdentity("c" * 16, A.config), (A, B)).is_loop
    # Without a configuration there are no servers that could be started.
    assert not GatewayChain(GatewayIdentity("c" * 16), (GatewayIdentity("d" * 16),)).is_loop


def test_a_chain_has_an_end() -> None:
    many = tuple(GatewayIdentity(f"{number:016x}", f"{number:016x}") for number in range(1, 20))
    own = GatewayIdentity("f" * 16, "f" * 16)
    assert not GatewayChain(own, many[: MAX_CHAIN_LENGTH - 1]).too_long
    assert GatewayChain(own, many[:MAX_CHAIN_LENGTH]).too_long
    assert GatewayChain(own, parse_chain(GatewayChain(own, many).environment["HEADGATE_CHAIN"])).too_long


@pytest.mark.parametrize("text", ["", ",", "x", "a/b", "A" * 16, f"{'a' * 16}/x", f"{'a' * 15}\n/"])
def test_what_is_no_chain_is_none(text: str) -> None:
    assert parse_chain(text) == ()


def test_a_configuration_is_known_by_its_path_and_its_machine() -> None:
    first = config_identity("host", "/etc/headgate.json")
    assert first == config_identity("host", "/etc/headgate.json")
    assert len({first, config_identity("other", "/etc/headgate.json"), config_identity("host", "/x")}) == 3
    assert config_identity("host", "/\udcff")


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"null",
        b"{}",
        b'{"io.headgate/gateways":',
        b'{"io.headgate/gateways":5}',
        b'{"io.headgate/gateways":[5]}',
        b'{"other":"io.headgate/gateways"}',
        b'{"io.headgate/gateways":["short","' + b"A" * 16 + b'"]}',
        b'{"io.headgate/gateways":"' + b"[" * 20_000,
        b'["io.headgate/gateways"]',
    ],
)
def test_a_server_that_is_no_gateway_names_none(meta: bytes) -> None:
    assert gateways_in_meta(meta) == frozenset()


def test_only_so_many_gateways_are_believed() -> None:
    named = [f"{number:016x}" for number in range(5000)]
    found = gateways_in_meta(json.dumps({"io.headgate/gateways": named}).encode())
    assert found == frozenset(named[:256])
