"""One SELECT over a stored result gives a number or a few rows, as JSON that fits."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import QueryParams
from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.query_processor import QueryProcessor
from tests.workers.sql_queries import rows, run_query

SALES = [{"city": city, "amount": amount} for city, amount in (("Rome", 3), ("Oslo", 4), ("Rome", 5))]
LOG = "INFO up\nERROR disk\nINFO up\nerror net\n"


def test_a_count_is_one_value() -> None:
    answer = run_query(json.dumps(SALES), "SELECT count(*) FROM rows")
    assert answer.content == b'{"columns":["count(*)"],"rows":[[3]]}'
    assert dict(answer.metadata) == {
        "rows": 1,
        "shown": 1,
        "more": False,
        "table_rows": 3,
        "columns_known": ["city", "amount"],
        "path": "",
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT sum(amount), avg(amount) FROM rows", [[12, 4.0]]),
        ("SELECT city, sum(amount) s FROM rows GROUP BY city ORDER BY s DESC", [["Rome", 8], ["Oslo", 4]]),
        ("SELECT amount FROM result ORDER BY 1 DESC LIMIT 1", [[5]]),
        ("SELECT rowid FROM result WHERE city = 'Oslo'", [[2]]),
        ("WITH r AS (SELECT * FROM rows WHERE amount > 3) SELECT count(*) FROM r", [[2]]),
        ("SELECT max(rank) FROM (SELECT rank() OVER (ORDER BY amount) AS rank FROM rows)", [[3]]),
        ("SELECT count(*) FROM rows a JOIN result b USING (city)", [[5]]),
        ("SELECT count(*) FROM rows NATURAL JOIN result", [[3]]),
        ("SELECT json_group_array(city) FROM rows", [['["Rome","Oslo","Rome"]']]),
        ("SELECT sum(value) FROM rows, json_each(json_array(amount, 1))", [[15]]),
        ("SELECT name FROM sqlite_master WHERE type = 'table'", [["rows"]]),
        ('SELECT "city" AS "c d" FROM rows -- "no" such\nLIMIT 1;', [["Rome"]]),
        ("SELECT x'00ff', 9e999, CAST(x'ff' AS TEXT), NULL", [["00ff", None, "\ufffd", None]]),
        ("VALUES (1), (2)", [[1], [2]]),
    ],
)
def test_what_models_write_is_answered(sql: str, expected: list[list[Any]]) -> None:
    assert rows(SALES, sql) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"), [("ERROR", 1), ("(?i)^error", 2), ("up$", 2), ("nothing", 0), ("^$", 0)]
)
def test_lines_are_found_by_a_regular_expression(pattern: str, expected: int) -> None:
    assert rows(LOG, f"SELECT count(*) FROM rows WHERE line REGEXP '{pattern}'") == [[expected]]


def test_numbers_and_nothing_can_be_matched_too() -> None:
    assert rows([{"a": 12}, {"a": None}], "SELECT a REGEXP '^1', a REGEXP NULL FROM rows") == [
        [1, None],
        [None, None],
    ]


@pytest.mark.parametrize("pattern", ["(", "x" * 1025])
def test_a_pattern_that_cannot_be_used_says_why(pattern: str) -> None:
    with pytest.raises(ProcessingError, match=r"regex at position|at most 1,?024"):
        run_query(LOG, f"SELECT count(*) FROM rows WHERE line REGEXP '{pattern}'")


@pytest.mark.parametrize("room", [40, 100, 1000, 8000])
def test_the_answer_has_whole_rows_and_fits(room: int) -> None:
    content = json.dumps([{"name": f"näme {n}"} for n in range(5000)])
    answer = run_query(content, "SELECT name FROM rows", room=room)
    shown = json.loads(bytes(answer.content))["rows"]
    assert shown == [[f"näme {n}"] for n in range(len(shown))]
    assert room - 20 < len(bytes(answer.content).decode()) <= room
    assert (answer.metadata["rows"], answer.metadata["shown"], answer.metadata["more"]) == (
        5000,
        len(shown),
        True,
    )


@pytest.mark.parametrize("room", [-1, 0, 10, 60])
def test_a_row_without_room_says_what_to_do(room: int) -> None:
    with pytest.raises(ProcessingError, match=r"substr\(\)"):
        run_query(json.dumps([{"text": "x" * 100}]), "SELECT text FROM rows", room=room)


def test_an_answer_without_rows_is_empty() -> None:
    assert (
        run_query(json.dumps(SALES), "SELECT city FROM rows WHERE 0").content
        == b'{"columns":["city"],"rows":[]}'
    )


def test_no_more_rows_are_fetched_than_anybody_reads() -> None:
    answer = run_query("x\n" * 10_001, "SELECT n FROM rows", room=1_000_000)
    assert (answer.metadata["rows"], answer.metadata["shown"], answer.metadata["more"]) == (
        10_000,
        10_000,
        True,
    )


@pytest.mark.parametrize("name", ["ammount", '"ammount"', "user.ammount"])
def test_a_wrong_name_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(
        ProcessingError, match=r"no such column: .*columns are amount, city, and text goes into single"
    ):
        run_query(json.dumps(SALES), f"SELECT sum({name}) FROM rows")


def test_a_name_that_needs_quotes_is_shown_in_quotes() -> None:
    with pytest.raises(ProcessingError, match=r'columns are "user\.name", user,'):
        run_query('[{"user": {"name": "Ann"}}]', "SELECT user.name FROM rows")


def test_of_many_names_the_nearest_thirty_are_told() -> None:
    content = json.dumps([{f"field_{n}": n for n in range(100)} | {"price": 1}])
    with pytest.raises(ProcessingError, match=r"columns are price, (\w+, ){29}and text"):
        run_query(content, "SELECT prize FROM rows")


@pytest.mark.parametrize(
    "sql", ["", "  \n", "-- nothing", "SELEC 1", "SELECT * FROM data", "SELECT (", "SELECT 'a"]
)
def test_what_is_no_statement_is_refused(sql: str) -> None:
    with pytest.raises(ProcessingError, match="rows"):
        run_query(LOG, sql)


def test_a_path_leads_through_json_lines() -> None:
    lines = "\n".join(json.dumps({"order": n, "items": [{"price": n}, {"price": 1}]}) for n in range(5))
    assert rows(lines, "SELECT sum(price), count(*) FROM rows", path="items[]") == [[15, 10]]
    assert rows(lines, "SELECT price FROM rows", path="[3].items") == [[3], [1]]


def test_a_path_to_nowhere_is_refused() -> None:
    with pytest.raises(ProcessingError, match="nowhere"):
        QueryProcessor().process(
            json.dumps({"a": SALES}).encode(), QueryParams(sql="SELECT 1", path="nowhere")
        )


WORDS = (
    "SELECT FROM rows WHERE city amount count(*) , ( ) ' \" ` [ ] -- /* */ ; * = 1 || LIKE \0 \ud800 é WITH"
)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS.split(" ")), max_size=9).map(" ".join))
def test_any_text_is_answered_or_refused(sql: str) -> None:
    with suppress(ProcessingError):
        assert json.loads(bytes(run_query(json.dumps(SALES), sql).content))["columns"]


def test_arrays_at_the_end_of_a_path_are_one_table() -> None:
    content = json.dumps([{"items": [{"sku": 1}, {"sku": 2}]}, {"items": []}, {"items": [{"sku": 3}]}])
    assert rows(content, "SELECT sum(sku), count(*) FROM rows", path="[].items") == [[6, 3]]
