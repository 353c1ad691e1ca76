"""A resource is shown under the URI that the client asked for, and nothing else of it changes."""

import json

import pytest

from headgate.protocol.result_conversion import with_resource_uri

NAME, PUBLIC = "file:///a", "headgate://bank/file:///a"


def test_every_content_of_that_uri_is_renamed_and_no_other() -> None:
    contents = b'{"uri":"file:///a","text":"file:///a"},{"uri":"file:///a/b","blob":"eA=="}'
    result = b'{"contents":[%s],"x":[ 1.0 ]}' % contents
    shown = with_resource_uri(result, NAME, PUBLIC)
    assert json.loads(shown) == {
        "contents": [{"uri": PUBLIC, "text": NAME}, {"uri": "file:///a/b", "blob": "eA=="}],
        "x": [1.0],
    }
    assert b"[ 1.0 ]" in shown


def test_a_uri_that_is_spelled_with_escapes_is_renamed_too() -> None:
    shown = with_resource_uri(b'{"contents":[{"uri":"file:\\/\\/\\/\\u0061"}]}', NAME, PUBLIC)
    assert json.loads(shown)["contents"] == [{"uri": PUBLIC}]


@pytest.mark.parametrize(
    "result",
    [
        b"[]",
        b'{"contents":{}}',
        b'{"contents":[1]}',
        b'{"contents":null}',
        b"{}",
        b'{"contents":[{"text":"half \\ud83d"}]}',
    ],
)
def test_what_is_no_contents_stays_as_it_is(result: bytes) -> None:
    assert with_resource_uri(result, NAME, PUBLIC) == result


@pytest.mark.parametrize("uri", [b"5", b"null", b"{}", b'"\xff"'])
def test_a_uri_that_is_no_text_stays_as_it_is(uri: bytes) -> None:
    shown = with_resource_uri(b'{"contents":[{"uri":%s},{"uri":"file:///a"}]}' % uri, NAME, PUBLIC)
    assert b'{"uri":%s}' % uri in shown
    assert PUBLIC.encode() in shown


def test_a_depth_that_no_parser_takes_stays_as_it_is() -> None:
    deep = b'{"contents":[{"uri":"file:///a","x":' + b"[" * 5000 + b"]" * 5000 + b"}]}"
    assert with_resource_uri(deep, NAME, PUBLIC) == deep
