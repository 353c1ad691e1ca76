"""A statement can read its table and nothing else, for a limited time and in limited memory."""

import json
import sqlite3
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from headgate.results.jobs import QueryParams
from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.query_processor import QueryProcessor
from headgate.workers.sql.sandbox import SqlSandbox
from headgate.workers.sql.statement_guard import StatementGuard
from headgate.workers.sql.table_columns import RowBatch, SqlTable
from tests.workers.sql_queries import rows, run_query

CONTENT = json.dumps([{"a": n, "text": "a" * 2000} for n in range(20)])
FOR_EVER = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA writable_schema = 1",
        "PRAGMA database_list",
        "INSERT INTO rows (a) VALUES (1)",
        "UPDATE rows SET a = 1 RETURNING a",
        "DELETE FROM rows",
        "WITH r AS (SELECT 1) DELETE FROM rows",
        "REPLACE INTO rows (a) VALUES (1)",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t AS SELECT * FROM rows",
        "CREATE TEMP VIEW v AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON rows BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "DROP TABLE rows",
        "ALTER TABLE rows ADD COLUMN b",
        "BEGIN",
        "SAVEPOINT s",
        "ANALYZE",
        "DETACH main",
    ],
)
def test_what_changes_something_is_refused(sql: str) -> None:
    with pytest.raises(ProcessingError, match="does more than read"):
        run_query(CONTENT, sql)


def test_no_file_is_attached_or_written(tmp_path: Path) -> None:
    secret, copy = tmp_path / "secret.db", tmp_path / "copy.db"
    with sqlite3.connect(secret) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    for sql in (f"ATTACH '{secret}' AS s", f"VACUUM INTO '{copy}'"):
        with pytest.raises(ProcessingError):
            run_query(CONTENT, sql)
    assert not copy.exists()


@pytest.mark.parametrize(
    "function", ["load_extension('x')", "fts3_tokenizer('simple')", "sqlite_compileoption_get(1)"]
)
def test_functions_that_reach_further_than_values_are_refused(function: str) -> None:
    with pytest.raises(ProcessingError, match=r"function '\w+' is not available"):
        run_query(CONTENT, f"SELECT {function}")


@pytest.mark.parametrize(
    "table",
    ["pragma_database_list", "pragma_table_info('rows')", "dbstat", "sqlite_dbpage", "sqlite_temp_master"],
)
def test_tables_about_the_engine_are_refused(table: str) -> None:
    with pytest.raises(ProcessingError):
        run_query(CONTENT, f"SELECT * FROM {table}")


@pytest.mark.parametrize(
    "sql", ["SELECT 1; SELECT 2", "SELECT 1; DROP TABLE rows", "SELECT 1;; INSERT INTO rows DEFAULT VALUES"]
)
def test_two_statements_are_refused(sql: str) -> None:
    with pytest.raises(ProcessingError, match="one statement at a time"):
        run_query(CONTENT, sql)


def test_sql_of_a_hundred_thousand_characters_is_refused() -> None:
    assert rows(CONTENT, "SELECT 1 AS a --" + "x" * 9_000) == [[1]]
    with pytest.raises(ProcessingError, match="at most 10000"):
        run_query(CONTENT, "SELECT 1 --" + "x" * 100_000)


def test_nul_in_sql_is_refused() -> None:
    with pytest.raises(ProcessingError, match="NUL"):
        run_query(CONTENT, "SELECT 1\0; DROP TABLE rows")


@pytest.mark.parametrize(
    "bomb",
    [
        "zeroblob(1000000000)",
        "randomblob(100000000)",
        "replace(replace(hex(zeroblob(4000)), '0', hex(zeroblob(1000))), '0', hex(zeroblob(1000)))",
        "(SELECT group_concat(x.text || y.text || z.text) FROM rows x, rows y, rows z)",
        "(SELECT json_group_array(x.text || y.text || z.text) FROM rows x, rows y, rows z)",
    ],
)
def test_no_value_grows_beyond_its_limit(bomb: str) -> None:
    with pytest.raises(ProcessingError, match="more than 1000000 bytes"):
        run_query(CONTENT, f"SELECT length({bomb})")


def test_values_are_formatted() -> None:
    sql = "SELECT printf('%.2f', 2.5), format('%05d|%-3s|%s%%', 42, 'a', 'é'), printf(NULL), printf('%s')"
    assert rows(CONTENT, sql) == [["2.50", "00042|a  |é%", None, ""]]


@pytest.mark.parametrize("form", ["'%.*c', 1000000000, 'x'", "'%1000000000d', 1", "'%!.999999999f', 1.0"])
def test_a_format_that_would_fill_the_memory_is_refused(form: str) -> None:
    for function in ("printf", "format"):
        with pytest.raises(ProcessingError, match="The format"):
            run_query(CONTENT, f"SELECT length({function}({form}))")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT " + "(" * 300 + "1" + ")" * 300, "parser stack|depth|nest"),
        ("SELECT " + "-".join(["1"] * 300), "depth"),
        (" UNION ALL ".join(["SELECT 1"] * 60), "compound"),
        ("SELECT " + ",".join(["1"] * 600), "columns"),
        ("SELECT max(" + ",".join(["1"] * 120) + ")", "arguments"),
        ("SELECT 'a' LIKE '" + "%a" * 600 + "'", "pattern too complex"),
    ],
)
def test_statements_of_monstrous_shape_are_refused(sql: str, reason: str) -> None:
    with pytest.raises(ProcessingError, match=f"SQLite refuses the statement: .*({reason})"):
        run_query(CONTENT, sql)


def ask_with_little_time(sql: str) -> None:
    # Every look at the clock is a second later than the one before.
    clock = count()
    QueryProcessor(5.0, lambda: float(next(clock))).process(CONTENT.encode(), QueryParams(sql=sql))


@pytest.mark.parametrize(
    "sql",
    [
        FOR_EVER + "SELECT count(*) FROM c",
        FOR_EVER + "SELECT n FROM c ORDER BY n DESC",
        FOR_EVER + "SELECT n FROM c WHERE n < 0",
        "SELECT count(*) FROM rows a, rows b, rows c, rows d, rows e, rows f",
        "SELECT count(*) FROM rows a, rows b, rows c WHERE a.text || b.text LIKE '%a%a%a%a%ab' || c.a",
    ],
)
def test_what_does_not_end_is_stopped(sql: str) -> None:
    with pytest.raises(ProcessingError, match="stopped after 5 s"):
        ask_with_little_time(sql)


def test_matching_large_values_looks_at_the_clock() -> None:
    large = "replace(text, 'a', substr(text, 1, 100))"
    with pytest.raises(ProcessingError, match="stopped after 5 s"):
        ask_with_little_time(f"SELECT count(*) FROM rows WHERE {large} REGEXP 'b$'")


def test_rows_without_end_are_fetched_up_to_the_limit() -> None:
    answer = run_query(CONTENT, FOR_EVER + "SELECT n FROM c")
    assert (answer.metadata["rows"], answer.metadata["more"]) == (10_000, True)


def many(rows_of: int, value: str, batches: int) -> SqlTable:
    columns = [[value] * rows_of]
    return SqlTable(
        ("a",), lambda wanted: (RowBatch(rows_of, columns if wanted else []) for _ in range(batches))
    )


def test_too_many_rows_are_refused() -> None:
    table = many(1_000_001, "x", 1)
    sandbox = SqlSandbox(table, "SELECT count(*) FROM rows", StatementGuard(5.0, float))
    with sandbox, pytest.raises(ProcessingError, match="more than 1000000 rows"):
        sandbox.load()


def test_more_values_than_can_be_loaded_in_time_are_refused() -> None:
    names = tuple(f"k{n}" for n in range(200))
    table = SqlTable(names, lambda wanted: iter([RowBatch(100_001, [range(100_001)] * len(wanted))]))
    sandbox = SqlSandbox(table, "SELECT * FROM rows", StatementGuard(5.0, float))
    with sandbox, pytest.raises(ProcessingError, match="reads 200 columns of more than 100000 rows"):
        sandbox.load()
    with SqlSandbox(table, "SELECT k7 FROM rows", StatementGuard(5.0, float)) as sandbox:
        sandbox.load()
        assert sandbox.rows == 100_001


def test_what_a_statement_sorts_cannot_fill_the_memory() -> None:
    # In a process of its own, because the bound holds for all of it and for good.
    script = """
from headgate.results.jobs import QueryParams
from headgate.workers.sql.query_processor import QueryProcessor

lines = b"\\n".join([b"x" * 100_000] * 50)
processor = QueryProcessor(60.0, most_heap_bytes=32 * 1024 * 1024)
print(processor.process(lines, QueryParams(sql="SELECT count(line) FROM rows")).content.decode())
processor.process(lines, QueryParams(sql="SELECT a.line FROM rows a, rows b ORDER BY a.line, b.n"))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == '{"columns":["count(line)"],"rows":[[50]]}\n'
    assert "ProcessingError: The statement takes too much memory" in ended.stderr


def test_too_large_a_table_is_refused() -> None:
    table = many(10, "x" * 100_000, 4)
    sandbox = SqlSandbox(table, "SELECT a FROM rows", StatementGuard(5.0, float), most_bytes=2 * 1024 * 1024)
    with sandbox, pytest.raises(ProcessingError, match="more than 2 MiB"):
        sandbox.load()


def test_a_line_that_is_too_long_harms_only_who_reads_it() -> None:
    content = b"x" * 17_000_000
    assert rows(content, "SELECT count(*) FROM rows") == [[1]]
    with pytest.raises(ProcessingError, match="more than 16000000 bytes"):
        run_query(content, "SELECT length(line) FROM rows")


def test_a_long_line_can_be_read() -> None:
    assert rows(b"x" * 3_000_000 + b"\ny", "SELECT length(line) FROM rows") == [[3_000_000], [1]]
