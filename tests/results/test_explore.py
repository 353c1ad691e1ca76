"""What is said of a content fits, is true, and names paths that lead somewhere."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import Content
from headgate.results.explore.explore_processor import ExploreProcessor
from headgate.results.jobs import ExploreParams
from headgate.results.json_paths import resolve_path
from headgate.results.pipeline import ProcessingError
from headgate.results.token_estimate import estimate_tokens

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-9, 9)
    | st.sampled_from(["", "a", "é" * 80, '\n"\\'])
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
_documents = st.lists(_values, max_size=4) | st.dictionaries(st.text(max_size=4), _values, max_size=4)


def _explored(content: Content, **params: Any) -> dict[str, Any]:
    made = ExploreProcessor().process(content, ExploreParams(**params)).content
    explored: dict[str, Any] = json.loads(made[:])
    return explored


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _users(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "email": f"user{number}@example.org"} for number in range(count)]


def test_each_branch_has_its_path_type_count_and_sample() -> None:
    users = _users(2)
    explored = _explored(_json({"total": 2, "users": users, "next": None}))
    assert explored["type"] == "object"
    emails = b"".join(_json(user["email"]) for user in users)
    assert explored["paths"] == {
        "total": {"type": "integer", "sample": 2},
        "users": {"type": "array", "count": 2, "of": "object", "tokens": estimate_tokens(_json(users))},
        "users[].id": {"type": "integer", "sample": 0},
        "users[].email": {"type": "string", "tokens": estimate_tokens(emails), "sample": "user0@example.org"},
        "next": {"type": "null"},
    }


def test_a_field_that_only_some_elements_have_says_how_many_do() -> None:
    explored = _explored(_json([{"id": 1}, {"id": None, "note": "x"}, {"id": 2}]))
    assert explored["paths"]["[].note"]["in"] == "1 of 3"
    assert explored["paths"]["[].id"] == {"type": "integer|null", "sample": 1}


def test_inner_arrays_say_how_different_their_lengths_are() -> None:
    explored = _explored(_json([{"tags": []}, {"tags": ["a", "b"]}]))
    assert explored["paths"]["[].tags"] == {"type": "array", "count": "0-2", "of": "string", "sample": "a"}


def test_what_is_deeper_is_named_and_not_shown() -> None:
    inner = _json({"name": {"first": "A", "last": "B"}})
    explored = _explored(b'{"user":%b}' % inner, max_depth=1)
    assert explored["paths"] == {
        "user": {"type": "object", "tokens": estimate_tokens(inner), "deeper": "name"}
    }


def test_sizes_are_those_of_all_elements_though_only_some_are_looked_at() -> None:
    explored = _explored(_json([{"text": "x" * 98} for _ in range(10_000)]))
    assert explored["count"] == 10_000
    assert explored["looked_at"] < 1000
    assert explored["paths"]["[].text"]["tokens"] == pytest.approx(
        10_000 * estimate_tokens(b'"' + b"x" * 98 + b'"'), rel=0.1
    )


def test_elements_are_looked_at_all_over_a_long_array() -> None:
    elements: list[dict[str, int]] = [{"old": 1}] * 5_000 + [{"new": 1}] * 5_000
    assert set(_explored(_json(elements))["paths"]) == {"[].old", "[].new"}


def test_a_map_from_ids_is_folded() -> None:
    explored = _explored(_json({"users": {f"u{number}": {"name": "A"} for number in range(5_000)}}))
    assert explored["paths"]["users"]["count"] == 5_000
    assert explored["paths"]["users"]["keys"].startswith("u0, u1, ")
    assert explored["paths"]["users.*.name"]["sample"] == "A"


def test_thousands_of_keys_are_folded_whatever_is_in_them() -> None:
    explored = _explored(_json({f"key{number}": [number, "a"][number % 2] for number in range(2_000)}))
    assert (explored["count"], explored["of"]) == (2_000, "integer|string")
    assert explored["keys"].startswith("key0, key1, ")


def test_a_record_with_many_fields_is_not_a_map() -> None:
    record = {f"column {letter}{number}": number for letter in "abcdefghi" for number in range(9)}
    explored = _explored(_json([record, record]), room=20_000)
    assert len(explored["paths"]) == len(record)


def test_of_very_many_fields_the_rest_is_counted() -> None:
    explored = _explored(
        _json({f"name{number}": [number, {}][number % 2] for number in range(300)}), room=50_000
    )
    assert len(explored["paths"]) == 200
    assert explored["more_fields"] == 100


def test_a_path_explores_a_part_and_the_paths_begin_at_the_top() -> None:
    content = _json({"users": [{"home": {"city": "Oslo"}}, {"home": {"city": "Rome"}}]})
    assert set(_explored(content, path="users")["paths"]) == {"users[].home", "users[].home.city"}
    # The names walk through the array, so the array of the homes is no array at that path.
    assert set(_explored(content, path="users.home")["paths"]) == {"users.home.city"}
    assert _explored(content, path="users[0].home.city")["head"] == "Oslo"
    with pytest.raises(ProcessingError, match="users"):
        _explored(content, path="user")


def test_json_lines_are_explored_like_one_array() -> None:
    content = b"\n".join(_json({"level": "info", "at": {"line": number}}) for number in range(400)) + b"\n\n"
    explored = _explored(content)
    assert (explored["type"], explored["count"], explored["of"]) == ("json lines", 400, "object")
    assert set(explored["paths"]) == {"level", "at", "at.line"}
    assert set(_explored(content, path="at")["paths"]) == {"at.line"}


def test_a_text_says_how_long_it_is_and_how_it_begins() -> None:
    assert _explored("one zwölf\nthree\n".encode()) == {
        "type": "text",
        "tokens": 5,
        "lines": 2,
        "words": 3,
        "characters": 16,
        "longest_line": 9,
        "head": "one zwölf\nthree",
    }


def test_a_text_of_many_windows_is_measured_exactly() -> None:
    text = "zwölf wörter " * 100_000 + "\n" + "end"
    explored = _explored(text.encode())
    assert explored["words"] == len(text.split())
    assert explored["characters"] == len(text)
    assert explored["longest_line"] == len(text) - 4
    assert explored["lines"] == 2


def test_a_log_says_how_often_each_level_comes() -> None:
    line = "2026-01-02 10:00:0{} [{}] the text INFO of it\n"
    text = "".join(line.format(number % 10, ["INFO", "ERROR"][number % 10 == 0]) for number in range(50_000))
    explored = _explored(text.encode())
    assert explored["looks_like"] == "log"
    assert explored["levels"] == {"INFO": 45_000, "ERROR": 5_000}


def test_a_table_names_its_columns() -> None:
    explored = _explored(b'id,name,"unit price"\n1,"a, b",2\n2,c,3\n')
    assert (explored["looks_like"], explored["columns"]) == ("csv", ["id", "name", "unit price"])


def test_markdown_names_its_headings_and_where_to_read_them() -> None:
    explored = _explored(b"# Title\n\nText.\n```\n# a comment\n```\n## Part\n")
    assert explored["looks_like"] == "markdown"
    assert explored["headings"] == [
        {"offset": 0, "heading": "# Title"},
        {"offset": 6, "heading": "## Part"},
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"<?xml version='1.0'?><a></a>", "xml"),
        (b"<!DOCTYPE html><html></html>", "html"),
        (b"\x7fELF\x00\x01", "binary"),
        (b"<user> wrote this", None),
        (b"# a script\n# with comments\nrun\n", None),
        (b"Well, this\nis, prose\nwith, commas and\nlines\n", None),
        (b"", None),
    ],
)
def test_a_kind_of_text_is_named_only_where_it_is_sure(text: bytes, kind: str | None) -> None:
    assert _explored(text).get("looks_like") == kind


def test_numbers_come_out_as_they_were_written() -> None:
    made = ExploreProcessor().process(b'{"a":1e400,"b":' + b"9" * 400 + b"}", ExploreParams()).content[:]
    assert b'"sample":1e400' in made
    assert json.loads(made)["paths"]["b"]["sample"] == "9" * 59 + "…"


def test_a_long_string_is_sampled_without_a_broken_escape() -> None:
    sample = _explored(b'["' + b"\\ud83d\\ude00" * 1000 + b'"]')["sample"]
    assert sample == "\N{GRINNING FACE}" * 59 + "…"


@pytest.mark.parametrize(
    "content",
    [b'{"\xff":1}', b"[" * 10_000 + b"]" * 10_000, b'{"a":"\\ud800"}', b"\xff\xfe\x00", b'{"a":1} x', b'"a"'],
)
def test_what_no_parser_takes_is_explored_as_text(content: bytes) -> None:
    assert _explored(content)["type"] == "text"


def test_a_mapped_content_is_explored_like_one_in_memory() -> None:
    content = _json({"users": _users(500)})
    with mmap.mmap(-1, len(content)) as mapped:
        mapped.write(content)
        assert _explored(mapped) == _explored(content)


@given(_documents, st.integers(1, 6))
@settings(max_examples=30)
def test_every_path_leads_to_something(document: Any, depth: int) -> None:
    content = _json(document)
    for path in _explored(content, max_depth=depth, room=100_000).get("paths", {}):
        assert resolve_path(content, path).value


@given(_documents, st.integers(60, 2000))
@settings(max_examples=30)
def test_the_answer_fits(document: Any, room: int) -> None:
    made = ExploreProcessor().process(_json(document), ExploreParams(max_depth=20, room=room)).content[:]
    assert len(made.decode()) <= room
    assert json.loads(made)["type"]


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(max_examples=60)
def test_no_bytes_are_too_strange(content: bytes, room: int) -> None:
    made = ExploreProcessor().process(content, ExploreParams(room=room)).content[:]
    assert len(made.decode()) <= max(room, 2)
