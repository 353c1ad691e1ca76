"""rmcp on the wire: what is read, what is written, and what is not taken for it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from headgate.protocol.rmcp import (
    NO_RESPONSE_META,
    RmcpRequestMeta,
    RmcpResponseMeta,
    RmcpTransfer,
    encode_rmcp_meta,
    meta_names,
    pop_request_meta,
    pop_response_meta,
    shared_features,
    supports_version,
    with_rmcp_capability,
    without_rmcp_capability,
    without_rmcp_meta,
)

OURS = ("ack", "retry", "idempotency")


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def declared(rmcp: object, **others: Any) -> bytes:
    return json.dumps({"sampling": {}, "experimental": {"rmcp": rmcp, **others}}).encode()


# What a peer can do.


@pytest.mark.parametrize("version", ["0.1.0", "0.1", "0.99.3", "0.2.0-rc1"])
def test_every_version_of_our_major_number_is_spoken(version: str) -> None:
    assert supports_version(version)
    assert shared_features(declared({"version": version, "features": ["ack"]}), OURS) == {"ack"}


@pytest.mark.parametrize(
    "version", ["1.0.0", "10.1", "", "0", "latest", "0.1.0.0", "-0.1", "0.1\n", "\u0660.1"]
)
def test_another_major_number_and_garbage_are_not_spoken(version: str) -> None:
    assert not supports_version(version)
    assert not shared_features(declared({"version": version, "features": ["ack"]}), OURS)


def test_features_that_one_side_does_not_know_are_left_out() -> None:
    features = ["ack", "telepathy", "idempotency", "ack"]
    assert shared_features(declared({"version": "0.1.0", "features": features}), OURS) == {
        "ack",
        "idempotency",
    }


@pytest.mark.parametrize(
    "capabilities",
    [
        b"",
        b"{}",
        b'"rmcp"',
        b'{"rmcp":{"version":"0.1.0","features":["ack"]}}',
        b'{"experimental":"rmcp","x":"rmcp"}',
        declared(None),
        declared("0.1.0"),
        declared({"features": ["ack"]}),
        declared({"version": 1, "features": ["ack"]}),
        declared({"version": "0.1.0", "features": "ack"}),
        declared({"version": "0.1.0", "features": [["ack"]]}),
        declared({"version": "0.1.0", "features": []}),
        declared({"version": "0.1.0"}),
        declared({"version": "0.1.0", "features": ["ack"]}, x="y" * 20_000),
    ],
)
def test_what_does_not_say_so_does_not_speak_it(capabilities: bytes) -> None:
    assert shared_features(capabilities, OURS) == frozenset()


def test_a_declaration_keeps_what_else_is_experimental() -> None:
    said = json.loads(with_rmcp_capability(b'{"roots":{},"experimental":{"x":{"y":1}}}', OURS))
    assert said == {
        "roots": {},
        "experimental": {"x": {"y": 1}, "rmcp": {"version": "0.1.0", "features": list(OURS)}},
    }
    assert json.loads(with_rmcp_capability(b'{"experimental":true}', OURS))["experimental"].keys() == {"rmcp"}


@given(st.dictionaries(st.sampled_from(["roots", "experimental", "x"]), st.sampled_from([{}, {"a": 1}])))
@settings(max_examples=40)
def test_what_was_declared_can_be_taken_back(others: dict[str, Any]) -> None:
    plain = json.dumps(others).encode()
    said = with_rmcp_capability(plain, OURS)
    assert shared_features(said, OURS) == frozenset(OURS)
    left = {name: value for name, value in others.items() if name != "experimental" or value}
    assert json.loads(without_rmcp_capability(said)) == left
    # What says nothing of it is the very same bytes, if not the same object: others may have asked before.
    assert without_rmcp_capability(plain) == plain


def test_another_spelling_of_the_name_does_not_get_through() -> None:
    sly = b'{"experimental":{"\\u0072mcp":{"version":"0.1.0","features":["ack"]}}}'
    assert without_rmcp_capability(sly) == b"{}"


OLD = {"version": "0.1.0", "features": ["ack"]}


@pytest.mark.parametrize(
    ("experimental", "features", "names"),
    [
        ({"mcp_tx": OLD}, {"ack"}, ("rmcp", "mcp_tx")),
        ({"mcp_tx": OLD, "rmcp": {"version": "0.1.0", "features": ["retry"]}}, {"retry"}, ("rmcp",)),
        ({"mcp_tx": OLD, "rmcp": {"version": "7.0.0"}}, {"ack"}, ("rmcp", "mcp_tx")),
        # One that cannot be read does not hide the other.
        ({"mcp_tx": OLD, "rmcp": 5}, {"ack"}, ("rmcp", "mcp_tx")),
        ({"mcp_tx": 5, "rmcp": OLD}, {"ack"}, ("rmcp",)),
        ({"mcp_tx": {"version": "1.0.0"}}, set(), ("rmcp",)),
        ({"x": 1}, set(), ("rmcp",)),
    ],
)
def test_the_older_name_is_read_as_the_same(
    experimental: dict[str, Any], features: set[str], names: tuple[str, ...]
) -> None:
    capabilities = json.dumps({"experimental": experimental}).encode()
    assert shared_features(capabilities, OURS) == features
    assert meta_names(capabilities) == names
    left = json.loads(without_rmcp_capability(capabilities)).get("experimental", {})
    assert left.keys() == experimental.keys() - {"rmcp", "mcp_tx"}


# What a request says.


def test_a_request_is_read_and_taken_out_of_its_meta() -> None:
    said = {"version": "0.1.0", "idempotency_key": "k", "timeout_ms": 5, "sequence": 2, "later": [1]}
    meta = {"rmcp": raw(said), "traceparent": raw("00")}
    assert pop_request_meta(meta) == RmcpRequestMeta(
        version="0.1.0", idempotency_key="k", timeout_ms=5, sequence=2
    )
    assert meta == {"traceparent": raw("00")}


def test_the_old_name_means_the_same() -> None:
    meta = {"mcp_tx": raw({"idempotency_key": "k"})}
    assert pop_request_meta(meta) == RmcpRequestMeta(idempotency_key="k")
    assert meta == {}
    both = {"rmcp": Raw(b'{"idempotency_key":"k"}'), "mcp_tx": Raw(b'{ "idempotency_key" : "k" }')}
    assert pop_request_meta(both) == RmcpRequestMeta(idempotency_key="k")


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        ({"rmcp": {"idempotency_key": "a"}, "mcp_tx": {"idempotency_key": "b"}}, "differ"),
        ({"rmcp": "0.1.0"}, r"^_meta\.rmcp must be an object$"),
        ({"mcp_tx": []}, r"^_meta\.mcp_tx must be an object$"),
        ({"rmcp": {"timeout_ms": "5"}}, r"^_meta\.rmcp\.timeout_ms must be a whole number$"),
        ({"rmcp": {"sequence": 1.5}}, r"^_meta\.rmcp\.sequence must be a whole number$"),
        ({"rmcp": {"idempotency_key": 5}}, r"^_meta\.rmcp\.idempotency_key must be a text$"),
        ({"mcp_tx": {"expect_ack": 1}}, r"^_meta\.mcp_tx\.expect_ack must be true or false$"),
        ({"rmcp": {"version": "2.0.0"}}, "we speak 0.1.0"),
    ],
)
def test_what_makes_no_sense_is_refused_and_still_goes_no_further(meta: dict[str, Any], problem: str) -> None:
    members = {key: raw(value) for key, value in meta.items()}
    with pytest.raises(ValueError, match=problem):
        pop_request_meta(members)
    assert members == {}


def test_a_request_that_says_nothing_asks_nothing() -> None:
    assert pop_request_meta({}) is None
    assert pop_request_meta({"progressToken": raw(1)}) is None


# What an answer says.


def test_absent_members_are_left_out_and_never_null() -> None:
    assert bytes(encode_rmcp_meta(RmcpResponseMeta(ack=True, attempts=1, duplicate=False))) == (
        b'{"ack":true,"duplicate":false,"attempts":1}'
    )
    assert bytes(encode_rmcp_meta(RmcpRequestMeta(retry_count=0))) == b'{"retry_count":0}'


@pytest.mark.parametrize("said", [None, "yes", [], {"ack": "no"}, {"chunked": {"transfer_id": 5}}])
def test_an_answer_that_cannot_be_read_says_nothing_and_goes_no_further(said: object) -> None:
    meta = {"rmcp": raw(said), "mcp_tx": raw(said), "x": raw(1)}
    assert pop_response_meta(meta) == NO_RESPONSE_META
    assert meta == {"x": raw(1)}


@pytest.mark.parametrize("name", ["rmcp", "mcp_tx"])
def test_a_message_can_be_handed_on_without_it(name: str) -> None:
    told = json.dumps({"data": "rmcp", "_meta": {name: {"ack": True}, "x": 1}}).encode()
    assert json.loads(without_rmcp_meta(told)) == {"data": "rmcp", "_meta": {"x": 1}}


@pytest.mark.parametrize(
    "message", [b"", b"[]", b'{"rmcp":{"ack":true}}', b'{"_meta":{"x":"rmcp"}}', b'{"a" : 1}']
)
def test_a_message_that_does_not_speak_of_it_stays_as_it_is(message: bytes) -> None:
    assert without_rmcp_meta(message) is message


@given(
    st.builds(
        RmcpResponseMeta,
        ack=st.none() | st.booleans(),
        processed=st.none() | st.booleans(),
        attempts=st.none() | st.integers(0, 99),
        error_code=st.none() | st.text(max_size=20),
        chunked=st.none()
        | st.builds(
            RmcpTransfer,
            transfer_id=st.text(max_size=9),
            size=st.integers(0, 9),
            chunk_size=st.integers(0, 9),
            total=st.integers(0, 9),
            sha256=st.text(max_size=9),
        ),
    )
)
@settings(max_examples=40)
def test_what_one_peer_says_the_other_reads(said: RmcpResponseMeta) -> None:
    assert pop_response_meta({"rmcp": encode_rmcp_meta(said)}) == said
    assert b"null" not in bytes(
        encode_rmcp_meta(RmcpResponseMeta(ack=said.ack, processed=said.processed, attempts=said.attempts))
    )
