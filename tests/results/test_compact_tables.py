"""Arrays of like objects as tables, and back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.compact_tables import from_compact_tables, to_compact_tables
from headgate.results.pipeline import ProcessingError

USERS = [
    {"id": number, "name": f"User {number}", "email": f"user{number}@example.com"} for number in range(20)
]

_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
_keys = st.sampled_from(["id", "name", "columns", "rows", 'a "b"\\', "é"])
_objects = st.dictionaries(_keys, _scalars, max_size=4)
_arrays = st.tuples(_objects, st.lists(_objects | _scalars, max_size=2), st.integers(2, 40)).map(
    lambda parts: [parts[0]] * parts[2] + parts[1]
)
_documents = _arrays | st.dictionaries(
    _keys, _arrays | _scalars | st.dictionaries(_keys, _arrays), max_size=3
)


def _table(document: Any) -> Any:
    content = to_compact_tables(json.dumps(document).encode())
    return None if content is None else json.loads(content)


def test_an_array_of_like_objects_becomes_a_table() -> None:
    table = _table(USERS)
    assert table["columns"] == ["id", "name", "email"]
    assert table["rows"][1] == [1, "User 1", "user1@example.com"]
    assert len(table["rows"]) == 20


def test_only_the_arrays_of_an_object_are_written_as_tables() -> None:
    document = {"total": 20, "data": {"users": USERS, "next": None}, "tags": ["a", "b"]}
    table = _table(document)
    assert table["data"]["users"] == _table(USERS)
    assert (table["total"], table["data"]["next"], table["tags"]) == (20, None, ["a", "b"])


def test_an_object_with_other_keys_stands_as_it_is_among_the_rows() -> None:
    odd = {"id": 7, "name": None}
    table = _table([*USERS, odd])
    assert table["rows"][-1] == odd
    assert table["rows"][0] == [0, "User 0", "user0@example.com"]


def test_a_missing_value_is_not_null_and_another_one_is_not_lost() -> None:
    for odd in ({"id": 1, "name": "x", "email": None}, {"id": 2, "name": "y"}, {**USERS[0], "extra": 1}):
        document = [*USERS, odd]
        assert (
            json.loads(from_compact_tables(to_compact_tables(json.dumps(document).encode()) or b""))
            == document
        )


def test_the_order_of_the_keys_does_not_matter() -> None:
    turned = {"email": "e", "name": "n", "id": 1}
    assert _table([*USERS, turned])["rows"][-1] == [1, "n", "e"]


def test_short_lists_are_cells_and_long_ones_are_not() -> None:
    tagged = [{**user, "tags": ["new", "paid"]} for user in USERS]
    assert _table(tagged)["rows"][0] == [0, "User 0", "user0@example.com", ["new", "paid"]]
    long = {**USERS[0], "tags": ["line of text"] * 20}
    assert _table([tagged[0], long, *tagged * 5])["rows"][1] == long
    assert _table([long] * 20) is None


def test_numbers_keep_every_digit() -> None:
    digits = b"1" * 400
    rows = b",".join(b'{"value":' + digits + b',"other":1.50,"last":1e400}' for _ in range(5))
    content = to_compact_tables(b"[" + rows + b"]")
    assert content is not None
    assert content.count(b"[" + digits + b",1.50,1e400]") == 5


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    content = b"[" + b",".join([b'{"identifier":1,"number":2,"identifier":3}'] * 9) + b"]"
    assert json.loads(to_compact_tables(content) or b"")["rows"] == [[3, 2]] * 9


@pytest.mark.parametrize(
    "document",
    [
        [{"a": 1}, {"a": 2}],
        [{"identifier": 1, "description": "one"}],
        [{}, {}, {}],
        [],
        {},
        [1, 2, 3],
        [[1], [2]],
        "text",
        {"id": 1, "name": "x"},
        [{f"key{number}": 1} for number in range(9)],
        [*USERS, [1, "a", "b"]],
        [*USERS, *[{**user, "verified": True} for user in USERS[:10]]],
    ],
)
def test_what_a_table_does_not_make_shorter_is_left_alone(document: Any) -> None:
    assert _table(document) is None


@pytest.mark.parametrize(
    "document",
    [
        {"columns": USERS, "rows": 3},
        {"users": USERS, "other": {"columns": ["a"], "rows": [[1]]}},
        {"a": {"b": {"columns": ["a"], "rows": [[1]]}}, "users": USERS},
    ],
)
def test_nothing_is_written_as_a_table_beside_what_looks_like_one(document: Any) -> None:
    assert _table(document) is None


@pytest.mark.parametrize(
    "content", [b"", b"[", b"\xff", b"[" * 10_000 + b"]" * 10_000, b'[{"\xff":1},{"\xff":1}]', b'["\\ud800"]']
)
def test_what_is_no_json_is_left_alone(content: bytes) -> None:
    assert to_compact_tables(content) is None


@pytest.mark.parametrize("compact", [b"{", b'{"columns":["a"],"rows":[[1,2]]}', b'{"columns":1,"rows":[]}'])
def test_what_is_no_table_is_not_written_out(compact: bytes) -> None:
    with pytest.raises(ProcessingError):
        from_compact_tables(compact)


def test_json_without_tables_is_not_changed_by_writing_out() -> None:
    assert from_compact_tables(b"[ 1,2 ]") == b"[ 1,2 ]"


@given(_documents, st.sampled_from([None, 2]))
@settings(max_examples=50)
def test_a_table_written_out_again_is_the_same_json(document: Any, indent: int | None) -> None:
    content = json.dumps(document, indent=indent, ensure_ascii=indent is None).encode()
    compact = to_compact_tables(content)
    if compact is not None:
        assert json.loads(from_compact_tables(compact)) == document
        assert len(compact) < len(content)
