"""A search in the structure finds fields by their names and paths, and headings and keys of a text."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import character_count
from headgate.results.jobs import ProjectionParams, SearchParams
from headgate.results.pipeline import ProcessorResult
from headgate.results.projection import ProjectionProcessor
from headgate.results.search.structure_search import search_structure

WHOLE = {
    "users": [
        {"id": 1, "email": "ann@example.com", "home": {"zip": "00100"}},
        {"id": 2, "email": None, "home": {"zip": 100, "e.mail": True}},
        {"id": 3.5},
    ],
    "total": 3,
}


def search(content: bytes, pattern: str, **params: Any) -> ProcessorResult:
    given = SearchParams(pattern=pattern, **params)
    result = search_structure(content, given)
    assert character_count(result.content[:]) <= given.room
    return result


def paths(value: object, pattern: str, **params: Any) -> list[Any]:
    found: list[Any] = json.loads(search(json.dumps(value).encode(), pattern, **params).content[:])["paths"]
    return found


def test_each_path_is_told_once_with_its_types_its_count_and_a_sample() -> None:
    assert paths(WHOLE, "^email$|zip") == [
        {"path": "users[].email", "types": ["string", "null"], "count": 2, "sample": "ann@example.com"},
        {"path": "users[].home.zip", "types": ["string", "integer"], "count": 2, "sample": "00100"},
    ]


def test_a_pattern_may_mean_the_way_to_a_field() -> None:
    assert [found["path"] for found in paths(WHOLE, r"users.*zip")] == ["users[].home.zip"]
    # What is below a field that matches does not match for that.
    assert [found["path"] for found in paths(WHOLE, "users")] == ["users"]


def test_values_are_not_searched() -> None:
    assert paths(WHOLE, "example") == []


def test_pages_of_paths_go_on() -> None:
    result = search(json.dumps({f"key{number}": 1 for number in range(40)}).encode(), "key", room=200)
    assert result.metadata["matches"] == 40
    assert result.metadata["next_offset"] == result.metadata["shown"] > 0


def test_a_map_by_id_is_told_as_one_and_each_of_its_names_is_found() -> None:
    whole = {f"id{number}": {"name": "x"} for number in range(2_000)}
    assert paths(whole, "name") == [{"path": "[].name", "types": ["string"], "count": 2000, "sample": "x"}]
    assert [found["path"] for found in paths(whole, "^id77$")] == ["id77"]


def test_the_lines_of_json_lines_share_their_paths() -> None:
    result = search(b'{"a": 1}\n{"a": "x", "b": 2}\n', "a")
    assert json.loads(result.content[:])["paths"] == [
        {"path": "a", "types": ["integer", "string"], "count": 2, "sample": 1}
    ]


def test_a_large_document_is_gone_through_in_parts() -> None:
    whole = {"data": {"rows": [{"id": number, "text": "-" * 200} for number in range(8_000)]}}
    assert paths(whole, "id") == [
        {"path": "data.rows[].id", "types": ["integer"], "count": 8000, "sample": 0}
    ]


@pytest.mark.parametrize("odd", [b"1e400", b"7" * 400, b"7" * 5_000, b'"\xff"', b"[" * 200 + b"]" * 200])
def test_odd_values_hide_no_field(odd: bytes) -> None:
    found = json.loads(search(b'[{"a": %b, "b": 1}, {"b": 2}]' % odd, "b").content[:])["paths"]
    assert found == [{"path": "[].b", "types": ["integer"], "count": 2, "sample": 1}]


def test_of_a_text_headings_sections_and_keys_are_found_with_their_lines() -> None:
    content = b"# Names\n\nSome names here\n[names]\nname = x\nother: y\n  first_name: z\n"
    assert search(content, "name", case_insensitive=True).content == (
        b"1: # Names\n4: [names]\n5: name = x\n7:   first_name: z"
    )


@pytest.mark.parametrize("content", [b"", b"\x00\xff: x", b"[" * 10_000, b"key: " + b"x" * 100_000])
def test_any_text_does(content: bytes) -> None:
    for pattern in ("key", "", "^", "$"):
        search(content, pattern, room=60)


_KEYS = st.text('ab.["\n 0*', min_size=1, max_size=4)
_VALUES = st.just(1) | st.dictionaries(_KEYS, st.just(1), min_size=1, max_size=3)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=3)


@settings(max_examples=60, deadline=None)
@given(value=_OBJECTS)
def test_every_path_is_one_that_a_projection_accepts(value: dict[str, Any]) -> None:
    content = json.dumps(value).encode()
    for found in paths(value, "", room=100_000):
        projected = ProjectionProcessor().process(content, ProjectionParams(fields=(found["path"],)))
        assert "fields_not_found" not in projected.metadata
