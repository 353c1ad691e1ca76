"""A message is put together from its pieces: in memory while it is small, on disk beyond, the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.domain.payload import SpooledPayload
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageAssembler,
    MessageTooLarge,
    UpstreamMessage,
)
from tests.protocol.json_spelling import JsonValue, Pen, cut, cuts, objects, pens
from tests.upstream.spool_limits import LARGEST, SPOOL_ABOVE, limits, open_files, taken

PADDING = "x" * SPOOL_ABOVE


def assemble(directory: Path, *pieces: bytes) -> UpstreamMessage:
    assembly = MessageAssembler(limits(directory))
    for piece in pieces:
        assembly.add(piece)
    return assembly.finish()


def answer(size: int) -> bytes:
    """An answer to request 1 of exactly so many bytes."""
    frame = b'{"jsonrpc":"2.0","id":1,"result":{"t":"%s"}}'
    return frame % (b"x" * (size - len(frame) + 2))


@pytest.mark.parametrize("size", [60, SPOOL_ABOVE - 1, SPOOL_ABOVE])
def test_a_message_up_to_the_limit_stays_in_memory(tmp_path: Path, size: int) -> None:
    message = assemble(tmp_path, answer(size))
    assert isinstance(message.result, bytes)
    assert answer(size).endswith(message.result + b"}")
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("size", [SPOOL_ABOVE + 1, 700_000, LARGEST])
def test_a_message_above_the_limit_is_kept_on_disk(tmp_path: Path, size: int) -> None:
    message = assemble(tmp_path, *cut(answer(size), range(0, size, 1000)))
    assert isinstance(message.result, SpooledPayload)
    assert message.result.size == size - 34
    assert bytes(message.envelope.id) == b"1"
    assert len(open_files(tmp_path)) == 1
    assert answer(size).endswith(taken(message.result) + b"}")
    assert open_files(tmp_path) == []


def parts(message: UpstreamMessage) -> dict[str, object]:
    envelope = message.envelope
    known = {"id": envelope.id, "error": envelope.error, "params": envelope.params}
    found: dict[str, object] = {name: bytes(part) for name, part in known.items()}
    return found | {"method": envelope.method, "result": taken(message.result)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pens, objects, cuts, st.sampled_from(["result", "error", "params"]))
def test_on_disk_a_message_means_what_it_means_in_memory(
    tmp_path: Path, pen: Pen, value: dict[str, JsonValue], places: list[int], member: str
) -> None:
    spelled = {"jsonrpc": '"2.0"', "id": "17", member: pen.value(value)}
    if member == "params":
        spelled["method"] = pen.text("notifications/x")
    small = pen.object(pen.shuffled(spelled)).encode()
    # White space between tokens makes it large and changes nothing.
    large = small + b" " * SPOOL_ABOVE
    assert parts(assemble(tmp_path, *cut(large, places))) == parts(assemble(tmp_path, small))
    assert open_files(tmp_path) == []


GARBLED = {
    "not utf-8": b'{"jsonrpc":"2.0","id":7,"result":{"t":"\xff%s"}}',
    "half a character": b'{"jsonrpc":"2.0","id":7,"result":{"t":"\xc3%s"}}',
    "cut off": b'{"jsonrpc":"2.0","id":7,"result":{"t":"%s',
    "not an object": b'[{"jsonrpc":"2.0","id":7,"result":{"t":"%s"}}]',
    "two objects": b'{"jsonrpc":"2.0","id":7,"result":{"t":"%s"}}{}',
    "id at the end": b'{"jsonrpc":"2.0","result":{"t":"\xff%s"},"id":7}',
}


@pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED)
def test_what_is_garbled_is_said_to_be_with_evidence_of_whose_it_was(
    tmp_path: Path, text: bytes, padding: str
) -> None:
    with pytest.raises(MalformedMessage) as garbled:
        assemble(tmp_path, text % padding.encode())
    assert b'"id":7' in garbled.value.evidence
    assert len(garbled.value.evidence) <= 8192
    assert open_files(tmp_path) == []


def test_a_large_message_with_two_ids_is_garbled(tmp_path: Path) -> None:
    with pytest.raises(MalformedMessage):
        assemble(tmp_path, b'{"jsonrpc":"2.0","id":7,"result":"' + PADDING.encode() + b'","id":8}')
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("method", [b"5", b"null", b"{}", b'"\\q"'])
def test_a_large_message_whose_method_is_no_text_is_garbled(tmp_path: Path, method: bytes) -> None:
    text = b'{"jsonrpc":"2.0","method":' + method + b',"params":{"t":"' + PADDING.encode() + b'"}}'
    with pytest.raises(MalformedMessage):
        assemble(tmp_path, text)
    assert open_files(tmp_path) == []


def test_a_message_that_is_too_large_is_dropped_and_the_next_one_is_read(tmp_path: Path) -> None:
    assembly = MessageAssembler(limits(tmp_path))
    assembly.add(b"x" * LARGEST)
    assert len(open_files(tmp_path)) == 1
    with pytest.raises(MessageTooLarge):
        assembly.add(b"x")
    assert not assembly.size
    assert open_files(tmp_path) == []
    assembly.add(answer(100))
    assert bytes(assembly.finish().envelope.id) == b"1"


def test_what_is_discarded_gives_its_disk_space_back(tmp_path: Path) -> None:
    assembly = MessageAssembler(limits(tmp_path))
    assembly.add(answer(100_000)[:-1])
    assert len(open_files(tmp_path)) == 1
    assembly.discard()
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
def test_a_result_of_any_depth_passes(tmp_path: Path, padding: str) -> None:
    result = b'{"t":"' + padding.encode() + b'","deep":' + b"[" * 3000 + b"]" * 3000 + b"}"
    message = assemble(tmp_path, b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}")
    assert bytes(message.envelope.id) == b"1"
    assert taken(message.result) == result


@pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
@pytest.mark.parametrize("half", ["\\ud83d", "\\ud83d and more", "\\ude00", "\\ud83d\\ud83d"])
def test_half_a_character_that_javascript_sends_is_carried(tmp_path: Path, padding: str, half: str) -> None:
    # JSON.stringify writes the half of an emoji that a cut left over as a lone surrogate.
    result = f'{{"content":[{{"type":"text","text":"{half}{padding}"}}]}}'.encode()
    message = assemble(tmp_path, b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}")
    assert taken(message.result) == result


@pytest.mark.parametrize("value", [5, "x", [1], True, None])
def test_any_value_can_be_a_result(tmp_path: Path, value: Any) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()
    assert json.loads(taken(assemble(tmp_path, text).result)) == value
