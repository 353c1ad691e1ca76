"""A path is read the way people write it, and leads to the bytes that were there."""

import json
import mmap
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from headgate.results.json_paths import (
    WILDCARD,
    JsonPath,
    elements_path,
    format_path,
    member_path,
    nearest_paths,
    parse_path,
    resolve_path,
)
from headgate.results.pipeline import ProcessingError

SHOP = (
    b'{"users": [{"name": "Ann", "email": "a@x", "tags": []}, {"name": "Bob", "tags": ["x", "y"]}],'
    b' "total": 12345678901234567890123.50, "none": [], "odd": {"a.b": {"c": 1}, "0": "zero"},'
    b' "grid": [[{"v": 1}], [], [{"v": 2}]]}'
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("users.email", ("users", "email")),
        ("users[].email", ("users", WILDCARD, "email")),
        ("users[*].email", ("users", WILDCARD, "email")),
        ("users[0].email", ("users", 0, "email")),
        ("users[-1]", ("users", -1)),
        ("users.*.id", ("users", WILDCARD, "id")),
        ("users.0.email", ("users", "0", "email")),
        ('["a.b"].c', ("a.b", "c")),
        ("['it\\'s']", ("it's",)),
        ("$.users[0]", ("users", 0)),
        ("$[0]", (0,)),
        ("$ref", ("$ref",)),
        (".users", ("users",)),
        (".[].id", (WILDCARD, "id")),
        ("/users/0/a~1b/~0", ("users", "0", "a/b", "~")),
        ("#/c%25d", ("c%d",)),
        ("/", ("",)),
        ("first name", ("first name",)),
        (" users[0].email\n", ("users", 0, "email")),
        ('[" a "]', (" a ",)),
        (" /users/a ", ("users", "a ")),
    ],
)
def test_a_path_is_read_the_way_people_write_it(text: str, steps: JsonPath) -> None:
    assert parse_path(text) == steps


@pytest.mark.parametrize("text", ["", "$", "#", ".", " ", " $\n"])
def test_some_paths_mean_the_whole(text: str) -> None:
    assert parse_path(text) == ()
    assert resolve_path(b"any text", text).value == b"any text"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a..b", 3),
        ("a.", 3),
        ("$..a", 3),
        ("a[b]", 2),
        ("a[0:3]", 2),
        ("a[0]b", 5),
        ("a]", 2),
        ("a[", 2),
        ('a["x]', 3),
        ('a["x"y]', 6),
        ("/a/~2", 4),
        ("\ud800..", 3),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_with_the_position(text: str, position: int) -> None:
    with pytest.raises(ProcessingError, match=f"position {position}:") as refused:
        parse_path(text)
    assert str(refused.value).encode(), "a reply must be able to carry it"


def test_a_refusal_shows_control_characters_as_escapes() -> None:
    with pytest.raises(ProcessingError) as refused:
        parse_path("\x1b[2J\u202e..")
    assert str(refused.value).isprintable()
    assert "\\x1b[2J\\u202e" in str(refused.value)


@pytest.mark.parametrize("text", ["a" * 1001, ".".join("a" * 65)])
def test_a_path_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(ProcessingError, match="too long"):
        parse_path(text)


@given(st.text(max_size=40))
@settings(max_examples=40)
def test_any_text_is_a_path_that_can_be_spelled_or_refused(text: str) -> None:
    with suppress(ProcessingError):
        assert parse_path(format_path(parse_path(text))) == parse_path(text)


@given(st.sampled_from(["", "$", "users", " users ", "$.a[0]", "/a/b", " #/x~1y "]), st.text(max_size=20))
@settings(max_examples=40)
def test_a_path_one_step_deeper_reads_back(path: str, key: str) -> None:
    assert parse_path(member_path(path, key)) == (*parse_path(path), key)
    assert parse_path(elements_path(member_path(path, key))) == (*parse_path(path), key, WILDCARD)


def test_a_key_is_quoted_only_where_it_must_be() -> None:
    assert member_path("users[]", "e-mail") == "users[].e-mail"
    assert member_path("users[]", "a.b") == 'users[]["a.b"]'
    assert elements_path("") == "[]"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("users[0].name", b'"Ann"'),
        ("users.1.name", b'"Bob"'),
        ("/users/1/tags", b'["x", "y"]'),
        ("users[-1].name", b'"Bob"'),
        ("users.name", b'["Ann","Bob"]'),
        ("users.email", b'["a@x"]'),
        ("users[].tags", b'[[],["x", "y"]]'),
        ("users[].tags[]", b'["x","y"]'),
        ("users.tags.0", b'["x"]'),
        ("total", b"12345678901234567890123.50"),
        ('odd["a.b"]', b'{"c": 1}'),
        ("odd.0", b'"zero"'),
        ("odd[0]", b'"zero"'),
        ("odd.*.c", b"[1]"),
        ("grid.v", b"[1,2]"),
        ("none", b"[]"),
        ("none.name", b"[]"),
        ("none[].name", b"[]"),
    ],
)
def test_a_path_leads_to_the_bytes_that_were_there(path: str, found: bytes) -> None:
    assert resolve_path(SHOP, path).value == found
    with mmap.mmap(-1, len(SHOP)) as mapped:
        mapped[:] = SHOP
        assert resolve_path(mapped, path).value == found


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("users.emial", "'users.emial': the nearest keys at 'users' are 'email', 'name', 'tags'."),
        ("user.name", "'user': the nearest keys at the top are 'users', "),
        ("users[7].name", "'users[7]': the longest array at 'users' has 2 elements"),
        ("none[0]", "'none[0]': the longest array at 'none' has 0 elements"),
        ("total.euros", "'total.euros': what is at 'total' has no members"),
        ("total[]", "'total[]': what is at 'total' has no members"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_failed_and_what_is_there(path: str, said: str) -> None:
    with pytest.raises(ProcessingError) as refused:
        resolve_path(SHOP, path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"ERROR: disk full", "no JSON"),
        (b"42", "no JSON"),
        (b'{"a": ', "no JSON"),
        (b"\x00\xff\xfe", "no JSON"),
        (b'{"a": "\\ud800"}', "no JSON"),
        (b'{"\xff": 1}', "no UTF-8"),
        (b"[" * 10_000 + b"]" * 10_000, "too deeply"),
        (b"[" * 900 + b'{"b":1}' + b"]" * 900, "too deeply"),
    ],
)
def test_content_that_no_path_leads_through_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ProcessingError, match=said):
        resolve_path(content, "a.b")


def test_only_five_keys_are_named_of_a_large_object() -> None:
    wide = b"{%b}" % b",".join(b'"key%d":1' % number for number in range(2_000))
    with pytest.raises(ProcessingError) as refused:
        resolve_path(wide, "kye1999")
    assert str(refused.value).count("'key") == 5
    assert "'key1999'" in str(refused.value)


class Kept:
    """Remembers the pieces that it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def store(self, chunks: object) -> bytes:
        assert hasattr(chunks, "__iter__")
        pieces = list(chunks)
        self.sizes = [len(piece) for piece in pieces]
        return b"".join(pieces)


def test_a_large_part_is_handed_over_in_pieces() -> None:
    scratch = Kept()
    text = b'"%b"' % (b"x" * 3_000_000)
    assert resolve_path(b'{"a": %b}' % text, "a", scratch).value == text
    assert max(scratch.sizes) <= 1024 * 1024


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc0"), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.binary(max_size=60) | st.builds(lambda data: json.dumps(data).encode(), _json),
    st.text('abc0.[]*-$/"', max_size=8),
)
@settings(max_examples=40)
def test_no_content_and_no_path_is_more_than_refused(content: bytes, path: str) -> None:
    with suppress(ProcessingError):
        assert isinstance(resolve_path(content, path).value, bytes)


def test_paths_nearest_to_one_that_leads_nowhere_lead_somewhere() -> None:
    values = [Raw(SHOP)]
    assert nearest_paths(values, parse_path("users[].nmae"))[0] == "users[].name"
    assert nearest_paths(values, parse_path("users.name")) == []


def test_a_name_that_stands_further_down_is_the_first_that_is_told() -> None:
    value = Raw(json.dumps([{"customer": {"name": "Ann", "email": "a@b"}, "amount": 1}]).encode())
    assert nearest_paths([value], parse_path("name"))[0] == "customer.name"
