"""Every result is a table: of elements, of members, of records or of lines."""

import json
import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import QueryParams
from headgate.workers.sql.query_processor import QueryProcessor
from tests.workers.sql_queries import rows, run_query

ORDERS = [
    {"id": 1, "user": {"name": "Ann", "home": {"city": "Rome"}}, "tags": ["a", "b"], "paid": True},
    {"id": 2, "user": {"name": "Bob"}, "tags": [], "paid": False, "note": None},
    {"id": 3, "total": 1.5},
]


def known(content: bytes | str) -> list[str]:
    names: list[str] = run_query(content, "SELECT count(*) FROM rows").metadata["columns_known"]
    return names


def test_an_array_of_objects_has_a_column_for_each_key_and_for_those_of_nested_objects() -> None:
    assert known(json.dumps(ORDERS)) == [
        "id",
        "user",
        "tags",
        "paid",
        "note",
        "total",
        "user.name",
        "user.home",
        "user.home.city",
    ]


def test_values_keep_their_types() -> None:
    assert rows(ORDERS, "SELECT id, paid, note, total FROM rows") == [
        [1, 1, None, None],
        [2, 0, None, None],
        [3, None, None, 1.5],
    ]


def test_null_and_what_is_missing_are_null() -> None:
    content = [{"a": None, "b": {"c": None}}, {"b": 1.5}, {"a": [], "b": {"d": 2}}, None]
    sql = 'SELECT typeof(a), typeof("b.c"), typeof("b.d"), typeof(value) FROM rows'
    assert rows(content, sql) == [
        ["null", "null", "null", "null"],
        ["null", "null", "null", "null"],
        ["text", "null", "integer", "null"],
        ["null", "null", "null", "null"],
    ]


def test_nested_values_are_columns_and_json_at_once() -> None:
    sql = """SELECT "user.home.city", user ->> '$.name', tags FROM rows WHERE id = 1"""
    assert rows(ORDERS, sql) == [["Rome", "Ann", '["a", "b"]']]


def test_nested_json_is_the_text_of_the_result_byte_for_byte() -> None:
    assert rows('[{"a": {"x": 1.10, "y": 1e2}}]', "SELECT a FROM rows") == [['{"x": 1.10, "y": 1e2}']]


def test_the_largest_array_of_objects_is_found_wherever_it_is() -> None:
    content = {"meta": [{"v": 1}], "data": {"page": {"items": ORDERS}, "words": ["a", "b", "c", "d"]}}
    answer = run_query(json.dumps(content), "SELECT count(*) FROM rows")
    assert (answer.metadata["table_rows"], answer.metadata["path"]) == (3, "data.page.items")


def test_an_array_is_not_looked_for_deeper_than_people_nest_them() -> None:
    content: dict[str, Any] = {"items": [{"v": 1}, {"v": 2}]}
    found = []
    for _ in range(10):
        found.append(run_query(json.dumps(content), "SELECT 1").metadata["table_rows"])
        content = {"in": content}
    assert found == [2] * 8 + [1] * 2


def test_a_path_chooses_another_array() -> None:
    content = {"few": [{"v": 7}], "many": ORDERS}
    assert rows(content, "SELECT v FROM rows", path="few") == [[7]]


def test_a_map_by_id_has_a_row_for_each_member() -> None:
    content = {"u1": {"age": 30, "city": "Rome"}, "u2": {"age": 40, "city": "Oslo"}}
    assert rows(content, "SELECT key, city FROM rows ORDER BY age DESC") == [["u2", "Oslo"], ["u1", "Rome"]]
    assert rows(content, "SELECT avg(age) FROM rows") == [[35.0]]


def test_an_object_is_one_row() -> None:
    assert rows({"name": "x", "size": 3, "parts": {"a": 1}}, 'SELECT name, size, "parts.a" FROM rows') == [
        ["x", 3, 1]
    ]


def test_elements_that_are_no_objects_are_values() -> None:
    content = [1, "two", None, [3], {"a": 4}]
    assert rows(content, "SELECT a, value FROM rows") == [
        [None, 1],
        [None, "two"],
        [None, None],
        [None, "[3]"],
        [4, None],
    ]


def test_json_lines_are_rows_and_a_line_that_is_none_is_a_value() -> None:
    lines = "".join(json.dumps({"n": n}) + "\n" for n in range(30)) + "\nTraceback\n"
    assert rows(lines, "SELECT sum(n), count(*), max(value) FROM rows") == [[435, 31, "Traceback"]]


def test_text_with_separators_has_the_columns_of_its_first_line() -> None:
    text = 'id,name,price,code\r\n1,"Smith, J.",2.5,007\r\n2,"two\r\nlines",,010\r\n'
    assert rows(text, "SELECT * FROM rows") == [
        [1, "Smith, J.", 2.5, "007"],
        [2, "two\r\nlines", None, "010"],
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_in_text_with_separators_compare_as_numbers(separator: str) -> None:
    text = "\n".join(separator.join(record) for record in (("name", "size"), ("a", "9"), ("b", "10")))
    assert rows(text, "SELECT name FROM rows WHERE size > 9") == [["b"]]


def test_records_of_other_lengths_lose_nothing() -> None:
    regular = "".join(f"{n},x\n" for n in range(60))
    text = f"a,b\n{regular}70,y,more,still more\n71\n"
    assert rows(text, "SELECT a, b, rest FROM rows WHERE a >= 70") == [
        [70, "y", "more,still more"],
        [71, None, None],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01 10:00:00,123 INFO up\n2026-01-01 10:00:01,456 INFO down\n",
        "Dear Sir, I write to you today about that matter\nof the lost letter, which nobody has seen\n",
        "one,two\n",
        "a,b\n1,2,3\n",
        "name,name\n1,2\n",
        'a,b\n1,"never closed' + " and on" * 30_000,
        "{not json\nat all\n",
    ],
)
def test_text_that_may_be_something_else_is_lines(text: str) -> None:
    assert known(text) == ["n", "line"]


def test_lines_have_numbers() -> None:
    assert rows("first\r\n\nthird", "SELECT n, line FROM rows") == [[1, "first"], [2, ""], [3, "third"]]


def test_a_text_inside_json_is_lines_too() -> None:
    content = {"log": "INFO up\nERROR down\nINFO up"}
    assert rows(content, "SELECT n FROM rows WHERE line LIKE 'ERROR%'", path="log") == [[2]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"[]", 0),
        (b"{}", 1),
        (b"[{}]", 1),
        (b"null", 1),
        (b"\xff\xfe\x00\n\x00", 2),
        (b"[" * 10_000 + b"]" * 10_000, 1),
        (b'{"\xff": 1}', 1),
        (b'[{"\xff": 1}, {"a": 2}]', 2),
        (b'[{"": 1, "A": 2, "a": 3, "A": 4, "a\\u0000": 5}]', 1),
    ],
)
def test_odd_contents_are_tables_like_any_other(content: bytes, expected: int) -> None:
    assert rows(content, "SELECT count(*) FROM rows") == [[expected]]
    answer = run_query(content, "SELECT * FROM rows", room=100_000)
    assert answer.metadata["shown"] == expected


def test_what_no_column_can_hold_is_text_as_it_is_written() -> None:
    long = b"9" * 400
    content = b'[{"a": -12345678901234567890}, {"a": 1e400}, {"a": "\xffx"}, {"a": %s}]' % long
    assert rows(content, "SELECT a FROM rows") == [
        ["-12345678901234567890"],
        ["1e400"],
        ["\ufffdx"],
        ["9" * 400],
    ]


def test_half_of_a_surrogate_pair_spoils_one_line_only() -> None:
    lines = '{"a": 1}\n' * 25 + '{"a": "\\ud800"}\n'
    assert rows(lines, "SELECT count(a), max(value) FROM rows") == [[25, '{"a": "\\ud800"}']]


def test_keys_that_differ_in_case_or_look_like_paths_are_columns_of_their_own() -> None:
    content = [{"id": 1, "ID": 2, "a.b": 3, "a": {"b": 4}}]
    assert rows(content, 'SELECT id, ID_2, "a.b", "a.b_2" FROM rows') == [[1, 2, 4, 3]]


def test_more_columns_than_anybody_names_are_left_out_and_counted() -> None:
    answer = run_query(json.dumps([{f"k{n}": n for n in range(250)}]), "SELECT k199 FROM rows")
    assert (json.loads(bytes(answer.content))["rows"], answer.metadata["columns_left_out"]) == ([[199]], 50)


def test_a_mapped_file_is_read_like_bytes(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 3_000_000 + b"\n" + b"ERROR\n" * 300_000)
    with file.open("rb") as decoded, mmap.mmap(decoded.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        sql = "SELECT count(*), max(n), max(length(line)) FROM rows"
        answer = QueryProcessor().process(mapped, QueryParams(sql=sql))
    assert json.loads(bytes(answer.content))["rows"] == [[300_001, 300_001, 3_000_000]]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(VALUES, max_size=8))
def test_any_array_has_as_many_rows_as_elements(elements: list[Any]) -> None:
    assert len(rows(elements, "SELECT * FROM rows")) == len(elements)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.fixed_dictionaries({"k": st.sampled_from("abc"), "v": st.integers(-(2**40), 2**40)})))
def test_sums_by_group_are_those_of_python(elements: list[dict[str, Any]]) -> None:
    sums: dict[str, int] = {}
    for element in elements:
        sums[element["k"]] = sums.get(element["k"], 0) + element["v"]
    grouped = rows(elements, "SELECT k, sum(v) FROM rows GROUP BY k") if elements else []
    assert dict(grouped) == sums


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:;\t\n1a\\', max_size=60).map(str.encode))
def test_any_bytes_are_a_table(content: bytes) -> None:
    answer = run_query(content, "SELECT * FROM rows")
    assert answer.metadata["rows"] == answer.metadata["table_rows"]
