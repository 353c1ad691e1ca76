"""No statement makes a wrong number of text without a word: it is read, refused, or told."""

import json
from collections.abc import Callable, Sequence

import pytest

from headgate.results.pipeline import ProcessingError
from tests.workers.sql_queries import rows, run_query

Write = Callable[[Sequence[object]], str]


def as_csv(values: Sequence[object]) -> str:
    return "name;x\n" + "".join(f'row{at};"{value}"\n' for at, value in enumerate(values))


def as_json(values: Sequence[object]) -> str:
    return json.dumps([{"name": f"row{at}", "x": value} for at, value in enumerate(values)])


def as_json_lines(values: Sequence[object]) -> str:
    return "\n".join(json.dumps({"name": f"row{at}", "x": value}) for at, value in enumerate(values))


def as_map(values: Sequence[object]) -> str:
    return json.dumps({f"row{at}": {"x": value, "y": 1} for at, value in enumerate(values)})


FORMS = pytest.mark.parametrize("write", [as_csv, as_json, as_json_lines, as_map])


def note(content: str, sql: str) -> str:
    return str(run_query(content, sql).metadata.get("reason", ""))


def refused(content: str, sql: str) -> str:
    with pytest.raises(ProcessingError) as error:
        run_query(content, sql)
    sentence = str(error.value)
    assert sentence.count(". ") <= 1
    return sentence


# What is read as numbers.


@FORMS
@pytest.mark.parametrize(
    ("values", "total"),
    [
        (("1,000.50", "2,000.25", "3"), 3003.75),
        (("1,234,567", "1"), 1_234_568),
        (("0,5", "1,25", "3"), 4.75),
        (("1.000,50", "7", "-2,5"), 1005.0),
        (("1.234.567,8", "0,2"), 1_234_568.0),
        (("1 000,50", "2,5"), 1003.0),
        (("1\u00a0000,50", "2"), 1002.5),
        (("1\u202f000.50", "2"), 1002.5),
        (("1'000.50", "2"), 1002.5),
        (("1\u2019000\u2019000.5", "0.5"), 1_000_001.0),
        (("\u22121,000.50", "0.5"), -1000.0),
        (("1,000.50", "", "2"), 1002.5),
    ],
)
def test_a_column_in_one_notation_is_one_of_numbers(
    write: Write, values: Sequence[str], total: float
) -> None:
    content = write(values)
    numbers = [row[0] for row in rows(content, "SELECT x FROM rows WHERE x IS NOT NULL")]
    assert all(isinstance(value, int | float) for value in numbers)
    assert rows(content, "SELECT sum(x), total(x), avg(x) FROM rows") == [
        [pytest.approx(total), pytest.approx(total), pytest.approx(total / len(numbers))]
    ]
    assert rows(content, "SELECT max(x) FROM rows") == [[max(numbers)]]
    assert rows(content, "SELECT x FROM rows WHERE x IS NOT NULL ORDER BY x") == [
        [n] for n in sorted(numbers)
    ]
    assert rows(content, "SELECT count(*) FROM rows WHERE x > 1.5") == [[sum(n > 1.5 for n in numbers)]]


@FORMS
def test_the_note_says_what_was_read_as_numbers(write: Write) -> None:
    content = write(("1,000.50", "3"))
    assert note(content, "SELECT sum(x) FROM rows") == "x is read as numbers, e.g. '1,000.50'"
    assert note(content, "SELECT count(*) FROM rows") == ""


@pytest.mark.parametrize(
    "values",
    [
        # Thousands, or three decimals.
        ("1,000", "2"),
        # Two notations.
        ("1,000.50", "0,5"),
        # Codes, telephone numbers, dates, versions, addresses, hexadecimal digits.
        ("00123", "10001"),
        ("555 123 456", "555 123 457"),
        ("+49 151 123", "+49 151 124"),
        ("2026-11-16", "2026-11-17"),
        ("1.2.3", "1.10.0"),
        ("10.0.0.1", "10.0.0.2"),
        ("0x1F", "0x20"),
        ("1e5x", "2"),
        # Units, and what is no number among numbers.
        ("$1,000.50", "$2"),
        ("5 %", "6 %"),
        ("(5)", "6"),
        ("12ms", "3ms"),
        ("1.5", "N/A"),
        ("n/a", "-"),
        ("true", "false"),
        ("123456789012345678901234567890,5", "1"),
    ],
)
@FORMS
def test_other_columns_stay_as_they_are_written(write: Write, values: Sequence[str]) -> None:
    assert [row[0] for row in rows(write(values), "SELECT x FROM rows")] == list(values)


def test_versions_are_no_numbers_and_measurements_are() -> None:
    versions = "name,x\na,1.9\nb,1.10\nc,2.0\n"
    assert rows(versions, "SELECT x FROM rows") == [["1.9"], ["1.10"], ["2.0"]]
    assert rows("name,x\na,1.9\nb,10.0\nc,0.25\n", "SELECT sum(x) FROM rows") == [[12.15]]
    assert rows("name,x\na,1.90\nb,1.10\nc,2\n", "SELECT sum(x) FROM rows") == [[5.0]]


def test_where_semicolons_separate_a_point_before_three_digits_says_nothing() -> None:
    text = "name;x\na;1.234\nb;12.500\n"
    assert rows(text, "SELECT x FROM rows") == [["1.234"], ["12.500"]]
    assert rows(text, "SELECT sum(number(x, ',')), sum(number(x, '.')) FROM rows") == [[13734, 13.734]]
    assert rows("name;x\na;0.234\nb;12.500\n", "SELECT sum(x) FROM rows") == [[12.734]]
    assert rows("name,x\na,1.234\nb,12.500\n", "SELECT sum(x) FROM rows") == [[13.734]]


def test_a_notation_is_found_beyond_the_first_rows() -> None:
    values = [str(n) for n in range(1200)] + ["1,000.50"]
    assert rows(as_csv(values), "SELECT sum(x) FROM rows") == [[pytest.approx(sum(range(1200)) + 1000.5)]]
    assert rows(as_json(values), "SELECT sum(x) FROM rows") == [[pytest.approx(sum(range(1200)) + 1000.5)]]
    values[1100] = "N/A"
    for write in (as_csv, as_json):
        assert "'N/A'" in refused(write(values), "SELECT sum(x) FROM rows")
        assert rows(write(values), "SELECT max(rowid) FROM rows WHERE x = 'N/A'") == [[1101]]


# What is refused.


@FORMS
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(x) FROM rows",
        "SELECT avg(x) FROM rows",
        "SELECT total(x) FROM rows",
        "SELECT sum(x) OVER () FROM rows",
        "SELECT sum(DISTINCT x) FROM rows",
        "SELECT sum(x) FILTER (WHERE x <> 'a') FROM rows",
        "SELECT sum(r.x) FROM rows r JOIN result s ON r.x = s.x",
        "SELECT sum(p) FROM (SELECT x AS p FROM rows)",
        "SELECT sum(p) FROM (SELECT x AS p FROM rows ORDER BY 1 LIMIT 10)",
        "WITH t(p) AS (SELECT x FROM rows) SELECT avg(p) FROM t",
        "WITH t(p) AS MATERIALIZED (SELECT x FROM rows) SELECT avg(p) FROM t",
        "SELECT sum(p) FROM (SELECT x p FROM rows UNION ALL SELECT x FROM result)",
        "SELECT sum(CASE WHEN x <> 'a' THEN x ELSE 0 END) FROM rows",
        "SELECT sum(coalesce(x, 0)) FROM rows",
        "SELECT x + 1 FROM rows",
        "SELECT x * 2 FROM rows",
        "SELECT -x FROM rows",
        "SELECT 100 / x FROM rows",
        "SELECT x % 7 FROM rows",
        "SELECT sum(x * 2) FROM rows",
        "SELECT round(x, 1) FROM rows",
        "SELECT abs(x) FROM rows",
        "SELECT substr(x, 1) FROM rows GROUP BY 1 HAVING sum(x) > 0",
        "SELECT x FROM rows WHERE x > 100",
        "SELECT x FROM rows WHERE 100 <= x",
        "SELECT x FROM rows WHERE x BETWEEN 1 AND 5",
        "SELECT count(*) FROM rows WHERE x = 1000",
        "SELECT count(*) FROM rows WHERE x IN (1000, 2)",
        "SELECT CASE WHEN x > 5 THEN 'more' END FROM rows",
        "SELECT x FROM rows ORDER BY x + 0",
    ],
)
def test_text_is_not_computed_or_compared_as_numbers(write: Write, sql: str) -> None:
    sentence = refused(write(("1,000", "2,000", "7")), sql)
    assert "column x holds text, e.g. '" in sentence
    assert "number(x, '.') if the point is the decimal mark, number(x, ',') if the comma is" in sentence


@FORMS
@pytest.mark.parametrize(
    ("values", "example"),
    [
        (("5", "N/A", "7"), "'N/A'"),
        (("$5", "$6"), "'$5'"),
        (("5%", "6%"), "'5%'"),
        (("(5)", "6"), "'(5)'"),
        (("12ms", "3ms"), "'12ms'"),
        (("2026-11-16", "2026-11-17"), "'2026-11-16'"),
        (("1.2.3", "1.10.0"), "'1.2.3'"),
        (("0x1F", "0x20"), "'0x1F'"),
    ],
)
def test_the_refusal_names_the_column_an_example_and_what_to_do(
    write: Write, values: Sequence[str], example: str
) -> None:
    assert refused(write(values), "SELECT sum(x) FROM rows") == (
        f"The column x holds text, e.g. {example}: write number(x), which is NULL for what is no number."
    )


def test_blank_text_is_no_zero() -> None:
    assert "''" in refused(as_json(("5", "", "7")), "SELECT avg(x) FROM rows")
    assert rows(as_json(("5", "", "7")), "SELECT avg(number(x)) FROM rows") == [[6.0]]


def test_mixed_values_are_refused_where_text_would_count() -> None:
    content = as_json((200, 404, "timeout", None, True))
    assert "'timeout'" in refused(content, "SELECT sum(x) FROM rows")
    assert "'timeout'" in refused(content, "SELECT count(*) FROM rows WHERE x >= 400")
    # No number is equal to a word, so that this is right.
    assert rows(content, "SELECT count(*) FROM rows WHERE x = 404") == [[1]]
    assert rows(content, "SELECT count(*) FROM rows WHERE number(x) >= 400") == [[1]]


def test_a_name_that_needs_quotes_is_advised_with_quotes() -> None:
    content = json.dumps([{"order": {"net price": "1,000"}}])
    assert "number(\"order.net price\", '.')" in refused(content, 'SELECT sum("order.net price") FROM rows')


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(json_extract(o, '$.x')) FROM rows",
        "SELECT sum(o ->> 'x') FROM rows",
        "SELECT total(value) FROM rows, json_each(o)",
        "SELECT avg(o ->> 'x') OVER () FROM rows",
        "SELECT sum(substr(t, 1, 9)) FROM rows",
        "SELECT avg(replace(t, 'k', '')) FROM rows",
    ],
)
def test_what_functions_give_is_not_summed_up_as_numbers_either(sql: str) -> None:
    content = json.dumps([{"o": {"x": "1,000.50"}, "t": "1,5k"}])
    assert "write number(...) around what is summed up" in refused(content, sql)


def test_sums_of_what_functions_give_are_those_of_sqlite() -> None:
    content = json.dumps([{"o": {"x": value}} for value in (1, 2.5, None, "3", " 4 ")])
    sums = (
        "sum(o ->> 'x'), avg(o ->> 'x'), total(o ->> 'x'), sum(o ->> 'y'), avg(o ->> 'y'), total(o ->> 'y')"
    )
    assert rows(content, f"SELECT {sums} FROM rows") == [[10.5, 2.625, 10.5, None, None, 0.0]]
    whole = json.dumps([{"o": {"x": value}} for value in (1, 2)])
    assert rows(whole, "SELECT sum(o ->> 'x') FROM rows") == [[3]]
    running = "SELECT sum(o ->> 'x') OVER (ORDER BY rowid ROWS 1 PRECEDING) FROM rows"
    assert rows(json.dumps([{"o": {"x": n}} for n in (1, 2, 4)]), running) == [[1], [3], [6]]
    large = json.dumps([{"o": {"x": 2**62}}] * 3)
    assert "total()" in refused(large, "SELECT sum(o ->> 'x') FROM rows")


# What is allowed.


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT sum(x) FROM rows", [[12.5]]),
        ("SELECT x + 1 FROM rows LIMIT 1", [[6]]),
        ("SELECT sum(CAST(x AS REAL)) FROM rows", [[12.5]]),
        ("SELECT x FROM rows WHERE x = '5'", [["5"]]),
        ("SELECT count(*), count(DISTINCT x), group_concat(x) FROM rows", [[2, 2, "5,7.5"]]),
        ("SELECT length(x) + 1 FROM rows LIMIT 1", [[2]]),
        ("SELECT x || '!' FROM rows LIMIT 1", [["5!"]]),
    ],
)
def test_plain_numbers_in_json_strings_keep_their_type_and_can_be_summed_up(
    sql: str, expected: list[list[object]]
) -> None:
    assert rows(as_json(("5", "7.5")), sql) == expected
    assert note(as_json(("5", "7.5")), sql) == ""


def test_plain_text_is_ordered_compared_and_grouped_as_ever() -> None:
    content = as_json(("Rome", "Oslo", "1984"))
    for sql in (
        "SELECT x FROM rows ORDER BY x",
        "SELECT min(x), max(x) FROM rows",
        "SELECT x, count(*) FROM rows GROUP BY x ORDER BY 2 DESC",
        "SELECT x FROM rows WHERE x > 'M'",
        "SELECT x FROM rows WHERE x = 5",
        "SELECT name, sum(rowid) FROM rows GROUP BY name",
    ):
        assert note(content, sql) == ""
        run_query(content, sql)


def test_dates_and_padded_codes_are_ordered_as_ever() -> None:
    for values in (("2026-11-16", "2025-01-01"), ("00123", "00045")):
        assert note(as_csv(values), "SELECT max(x) FROM rows") == ""


# What is reported.


@FORMS
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(x) FROM rows",
        "SELECT min(x) FROM rows",
        "SELECT x FROM rows ORDER BY x",
        "SELECT x FROM rows ORDER BY x DESC LIMIT 1",
        'SELECT x FROM rows ORDER BY rowid > 0, "x"',
        "SELECT rank() OVER (ORDER BY x) FROM rows",
        "SELECT x FROM rows WHERE x > '8,000'",
    ],
)
def test_numbers_that_are_ordered_as_text_are_told(write: Write, sql: str) -> None:
    assert "ordered as text: use number(x)" in note(write(("9,000", "10,000")), sql)


@FORMS
@pytest.mark.parametrize("kind", ["REAL", "INTEGER", "NUMERIC"])
def test_a_cast_of_what_is_not_wholly_a_number_is_told(write: Write, kind: str) -> None:
    output = note(write(("1,000", "N/A")), f"SELECT sum(CAST(x AS {kind})) FROM rows")
    assert output.startswith(
        "x holds text, e.g. '1,000', of which CAST takes only the number at the beginning"
    )
    assert "number(x)" in output
    assert note(write(("1,000", "N/A")), "SELECT CAST(x AS TEXT) FROM rows") == ""


def test_what_number_does_not_read_is_told() -> None:
    content = as_json(("1,000.50", "N/A", "", None))
    assert rows(content, "SELECT sum(number(x)), count(number(x)) FROM rows") == [[1000.5, 1]]
    assert note(content, "SELECT sum(number(x)) FROM rows") == "number() is NULL for 'N/A'"


# The function.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5),
        ("-5.5", -5.5),
        ("+5", 5),
        (" 5 ", 5),
        ("\u22125", -5),
        ("00123", 123),
        ("0,5", 0.5),
        ("1,000.50", 1000.5),
        ("1.000,50", 1000.5),
        ("1 000,50", 1000.5),
        ("1.000.000", 1_000_000),
        ("1,234,567", 1_234_567),
        ("$1,000.50", 1000.5),
        ("-$5", -5),
        ("$-5", -5),
        ("5 €", 5),
        ("EUR 5", 5),
        ("5 USD", 5),
        ("12.5%", 12.5),
        ("(5)", -5),
        ("($1,000.50)", -1000.5),
        ("1e3", 1000.0),
        ("12345678901234567890", 12345678901234567890.0),
        ("N/A", None),
        ("", None),
        ("-", None),
        ("$", None),
        ("0x1F", None),
        ("1.2.3", None),
        ("1,2,3", None),
        ("2026-11-16", None),
        ("12ms", None),
        ("inf", None),
        ("nan", None),
        ("1e999", None),
        ("(-5)", None),
        ("--5", None),
        ("٣", None),
        ("9" * 200, None),
    ],
)
def test_number_reads_one_number_or_none(text: str, expected: float | None) -> None:
    assert rows([1], f"SELECT number('{text}')") == [[expected]]


@pytest.mark.parametrize(
    ("text", "mark", "expected"),
    [
        ("1,000", ".", 1000),
        ("1,000", ",", 1.0),
        ("1.000", ".", 1.0),
        ("1.000", ",", 1000),
        ("1,5", ".", None),
        ("1.5", ",", None),
        ("1.000,5", ".", None),
        ("1 000,5", ",", 1000.5),
        ("12", ",", 12),
    ],
)
def test_the_decimal_mark_can_be_given(text: str, mark: str, expected: float | None) -> None:
    assert rows([1], f"SELECT number('{text}', '{mark}')") == [[expected]]


def test_number_says_what_it_cannot_know_and_what_it_does_not_take() -> None:
    assert "number(x, '.') if the point" in refused(as_json(["1,000"]), "SELECT number(x) FROM rows")
    assert "write '.' or ','" in refused(as_json(["1"]), "SELECT number(x, ';') FROM rows")
    assert rows(
        [{"x": 5, "y": None}], "SELECT number(x), number(y), number(1.5), number(x'00') FROM rows"
    ) == [[5, None, 1.5, None]]
