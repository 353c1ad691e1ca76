"""The upstreams answer with what they promise, and a wrong answer is never counted as right."""

import json

import pytest

from bench.load.expected import FIRST_ID, Expected
from testkit.servers.prepared_answers import PAYLOADS, Answers, Envelope, payload_result
from testkit.servers.prepared_stdio import reply


@pytest.mark.parametrize("size", PAYLOADS.values())
def test_a_result_has_exactly_the_promised_size(size: int) -> None:
    result = payload_result(size)
    assert len(result) == size
    assert json.loads(result)["content"][0]["type"] == "text"


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_an_upstream_lists_as_many_tools_as_asked(count: int) -> None:
    listing = Answers(tools=count, modern=False).result(Envelope(method="tools/list"))
    assert listing is not None
    names = [tool["name"] for tool in json.loads(listing)["tools"]]
    assert len(set(names)) == len(names) == count


def test_only_a_modern_upstream_can_be_discovered() -> None:
    asked = Envelope(method="server/discover")
    assert Answers(tools=4, modern=False).result(asked) is None
    assert Answers(tools=4, modern=True).result(asked) is not None


def test_the_answer_of_an_upstream_is_right() -> None:
    assert _fault(_answer(FIRST_ID)) == ""


def test_an_answer_may_carry_its_id_behind_the_result() -> None:
    behind = b'{"result":' + payload_result(100_000) + b',"jsonrpc":"2.0","id":%d}' % FIRST_ID
    assert _fault(behind) == ""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda answer: answer.replace(b"1000000", b"1000001", 1), "does not carry id"),
        (lambda answer: answer[:50_000], "does not hold the result"),
        (lambda answer: answer.replace(b"row 0000700", b"row 0000070"), "altered"),
        (lambda answer: b'{"jsonrpc":"2.0","id":1000000,"error":{"code":1}}', "does not hold the result"),
    ],
)
def test_a_wrong_answer_is_recognised(wrong, reason: str) -> None:  # type: ignore[no-untyped-def]
    assert reason in _fault(wrong(_answer(FIRST_ID)))


def _answer(number: int) -> bytes:
    call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"payload_100k"}}' % number
    return b"".join(reply(Answers(tools=4, modern=False), call))


def _fault(answer: bytes) -> str:
    return Expected(100_000).fault(answer, 0, len(answer), FIRST_ID, whole=True)
