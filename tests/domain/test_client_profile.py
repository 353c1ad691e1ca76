"""What a client declared: equal declarations are one profile, and nonsense declares nothing."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.domain.client_profile import MAX_CAPABILITIES_BYTES, PLAIN_PROFILE, profile_of


@pytest.mark.parametrize(
    "capabilities",
    [
        b"",
        b"{}",
        b"{ }",
        b"[]",
        b"null",
        b"nonsense",
        b'{"roots":',
        b'{"\xff":{}}',
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"sampling":{},"x":"%s"}' % (b"x" * MAX_CAPABILITIES_BYTES),
    ],
)
def test_what_declares_nothing_or_cannot_be_read_is_plain(capabilities: bytes) -> None:
    assert profile_of(capabilities) is PLAIN_PROFILE
    assert not PLAIN_PROFILE.accepts_input_requests


@pytest.mark.parametrize(
    "spelling",
    [b'{"roots":{"listChanged":true},"sampling":{}}', b'{ "sampling":{ },"roots":{"listChanged":true}}'],
)
def test_equal_declarations_are_one_profile_however_they_are_spelled(spelling: bytes) -> None:
    profile = profile_of(spelling)
    assert profile == profile_of(b'{"sampling":{},"roots":{"listChanged":true}}')
    assert profile.capabilities == b'{"roots":{"listChanged":true},"sampling":{}}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"sampling":{}}', b'{"roots":{}}'),
        (b'{"roots":{}}', b'{"roots":{"listChanged":true}}'),
        (b'{"extensions":{"a/b":{}}}', b"{}"),
        (b'{"elicitation":{}}', b'{"elicitation":{"form":{}}}'),
    ],
)
def test_other_declarations_are_other_profiles(one: bytes, other: bytes) -> None:
    assert profile_of(one) != profile_of(other)


ASKED = {
    "roots": ("roots/list", b""),
    "sampling": ("sampling/createMessage", b'{"maxTokens":5}'),
    "form": ("elicitation/create", b'{"message":"?","requestedSchema":{}}'),
    "named form": ("elicitation/create", b'{"mode":"form"}'),
    "url": ("elicitation/create", b'{"mode":"url"}'),
    "nonsense": ("elicitation/create", b'{"mode":5}'),
    "other mode": ("elicitation/create", b'{"mode":"dance"}'),
    "vendor": ("vendor/ask", b"{}"),
}
FORMS = {"form", "named form"}


@pytest.mark.parametrize(
    ("capabilities", "answers"),
    [
        (b"{}", set()),
        (b'{"roots":{}}', {"roots", "vendor"}),
        (b'{"sampling":{"tools":{}}}', {"sampling", "vendor"}),
        (b'{"elicitation":{}}', {*FORMS, "vendor"}),
        (b'{"elicitation":{"form":{}}}', {*FORMS, "vendor"}),
        (b'{"elicitation":{"url":{}}}', {"url", "vendor"}),
        (b'{"elicitation":{"form":{},"url":{}}}', {*FORMS, "url", "vendor"}),
        (b'{"roots":{},"sampling":{},"elicitation":{}}', {"roots", "sampling", *FORMS, "vendor"}),
        # Said, but not as the protocol says it.
        (b'{"roots":true,"sampling":null,"elicitation":[]}', set()),
        (b'{"extensions":{"a/b":{}},"experimental":{"x":{}}}', set()),
    ],
)
def test_a_client_is_asked_what_it_declared(capabilities: bytes, answers: set[str]) -> None:
    profile = profile_of(capabilities)
    found = {
        name for name, (method, params) in ASKED.items() if profile.supports_input_request(method, params)
    }
    assert found == answers
    assert profile.accepts_input_requests == bool(answers)


@pytest.mark.parametrize(
    ("capabilities", "asked", "reason"),
    [
        (b"{}", "form", "the client does not support elicitation"),
        (b'{"roots":{}}', "sampling", "the client does not support sampling"),
        (b'{"elicitation":{}}', "url", "the client does not support this kind of elicitation"),
        (b"{}", "vendor", "the client cannot be asked anything"),
    ],
)
def test_a_refusal_names_what_the_client_lacks(capabilities: bytes, asked: str, reason: str) -> None:
    method, params = ASKED[asked]
    profile = profile_of(capabilities)
    assert not profile.supports_input_request(method, params)
    assert profile.unsupported_reason(method) == reason


@given(st.binary(max_size=200))
def test_whatever_a_client_declares_is_answered(capabilities: bytes) -> None:
    profile = profile_of(capabilities)
    assert profile_of(profile.capabilities) == profile


@given(st.text(max_size=20), st.binary(max_size=100))
def test_whatever_a_server_asks_is_answered(method: str, params: bytes) -> None:
    assert not PLAIN_PROFILE.supports_input_request(method, params)
    profile_of(b'{"elicitation":{}}').supports_input_request("elicitation/create", params)


def test_a_declaration_that_is_too_long_is_not_kept() -> None:
    declared = b'{"x":"%s"}' % bytes(MAX_CAPABILITIES_BYTES)
    before = sys.getrefcount(declared)
    assert profile_of(declared) is PLAIN_PROFILE
    assert sys.getrefcount(declared) == before


@pytest.mark.parametrize(
    ("declared", "seen"),
    [
        (b'{"experimental":{"rmcp":{"version":"0.1.0","features":["ack"]}}}', b"{}"),
        (b'{"sampling":{},"experimental":{"rmcp":null}}', b'{"sampling":{}}'),
        (b'{"experimental":{"mcp_tx":{"version":"0.1.0","features":["ack"]}}}', b"{}"),
        (b'{"experimental":{"\\u0072mcp":{},"x":{}}}', b'{"experimental":{"x":{}}}'),
        (b'{"experimental":{}}', b'{"experimental":{}}'),
    ],
)
def test_that_a_client_speaks_rmcp_is_no_part_of_its_profile(declared: bytes, seen: bytes) -> None:
    assert profile_of(declared).capabilities == seen
