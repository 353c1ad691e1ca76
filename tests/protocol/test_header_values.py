"""Any text survives the way through a header, and has only one spelling there."""

import pytest
from hypothesis import example, given

from headgate.protocol.mcp_headers import decode_header_value, encode_header_value
from tests.protocol.json_spelling import texts


@given(texts)
@example("")
@example(" leading and trailing ")
@example("=?base64?aGVsbG8=?=")
@example("line\r\nbreak: injected")
@example("Grüße, 世界")
def test_any_text_comes_back(text: str) -> None:
    value = encode_header_value(text)
    assert decode_header_value(value) == text
    assert value.isascii()
    assert value == value.strip()
    assert not set(value) & set(b"\r\n\0")


def test_a_plain_name_is_sent_as_it_is() -> None:
    assert encode_header_value("files.read_file") == b"files.read_file"


@pytest.mark.parametrize(
    "value", [b"=?base64?aGVsbG8?=", b"=?base64?aGVsbG9=?=", b"=?base64?a GVsbG8=?=", b"=?base64?/w==?="]
)
def test_a_second_spelling_of_a_value_is_none(value: bytes) -> None:
    assert decode_header_value(value) is None
