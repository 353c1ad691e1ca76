"""Whatever `proxy_explore` prints as a field is a column of `proxy_query`, written as it is printed."""

import json
from typing import Any

import pytest

from headgate.results.content import MemoryScratch
from headgate.results.explore.explore_processor import ExploreProcessor
from headgate.results.jobs import ExploreParams
from headgate.results.pipeline import ProcessingError
from tests.workers.sql_queries import rows, run_query

ROW: dict[str, Any] = {
    "id": 1,
    "Name": "upper",
    "name": "lower",
    "NAME": "capitals",
    "a.b": "dotted",
    "a": {"b": "nested"},
    "x y": 2,
    'we"ird': 3,
    "back`tick": 4,
    "[b]": 5,
    "": 6,
    "select": 7,
    "größe": 8,
    "it's": 9,
    "1st": 10,
    "long" * 40: 11,
    "user": {"name": "Ann", "home": {"city": {"geo": {"lat": 52.5}}}},
    "tags": ["x", "y"],
    "lines": [{"price": 1, "of": {"sku": "s1"}}, {"price": 2, "of": {"sku": "s2"}}],
}
EXPECTED: dict[str, Any] = {
    "id": 1,
    "Name": "upper",
    "name": "lower",
    "NAME": "capitals",
    '["a.b"]': "dotted",
    "a": '{"b": "nested"}',
    "a.b": "nested",
    '["x y"]': 2,
    '["we\\"ird"]': 3,
    '["back`tick"]': 4,
    '["[b]"]': 5,
    '[""]': 6,
    "select": 7,
    "größe": 8,
    '["it\'s"]': 9,
    "1st": 10,
    "long" * 40: 11,
    "user": json.dumps(ROW["user"]),
    "user.name": "Ann",
    "user.home": json.dumps(ROW["user"]["home"]),
    "user.home.city": json.dumps(ROW["user"]["home"]["city"]),
    "user.home.city.geo": '{"lat":52.5}',
    "user.home.city.geo.lat": 52.5,
    "tags": '["x", "y"]',
    "lines": json.dumps(ROW["lines"]),
    "lines[].price": "[1,2]",
    "lines[].of": '[{"sku":"s1"},{"sku":"s2"}]',
    "lines[].of.sku": '["s1","s2"]',
}


def explored(content: str, path: str = "") -> list[str]:
    made = ExploreProcessor(MemoryScratch()).process(
        content.encode(), ExploreParams(path=path, max_depth=20, room=100_000)
    )
    return list(json.loads(bytes(made.content))["paths"])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize(
    ("content", "prefix", "path"),
    [
        (json.dumps([ROW, ROW]), "[]", ""),
        (json.dumps({"total": 2, "orders": [ROW, ROW]}), "orders[]", ""),
        (json.dumps({"data": {"my orders": [ROW, ROW]}}), 'data["my orders"][]', ""),
        (json.dumps({"few": [ROW], "many": [{"v": n} for n in range(9)]}), "few[]", "few"),
        (json.dumps(ROW) + "\n" + json.dumps(ROW) + "\n", "", ""),
    ],
)
def test_what_is_printed_is_a_column(content: str, prefix: str, path: str) -> None:
    printed = [name for name in explored(content, path) if name.startswith(prefix)]
    values = {}
    for name in printed:
        inside = name.removeprefix(prefix).removeprefix(".")
        if inside:
            values[inside] = rows(content, f"SELECT {quoted(name)} FROM rows", path=path)[0][0]
    assert values == EXPECTED


def test_every_name_can_be_written_from_the_row_on() -> None:
    content = json.dumps({"total": 2, "orders": [ROW, ROW]})
    for name, value in EXPECTED.items():
        assert rows(content, f"SELECT {quoted(name)} AS it FROM rows LIMIT 1") == [[value]]


def test_names_can_be_written_in_every_clause_and_with_every_quote() -> None:
    content = json.dumps({"orders": [{"user": {"name": n}, "Key": n, "key": -n} for n in (1, 2, 3)]})
    sql = 'SELECT max("orders[].user.name") FROM rows r WHERE r.`orders.user.name` > 1 GROUP BY [user.name]'
    assert rows(content, sql + " ORDER BY 1") == [[2], [3]]
    assert rows(content, "SELECT sum(key), sum(Key), sum(r.key) FROM rows r") == [[-6, 6, -6]]
    # A text and a name that is given are none of a column.
    assert rows(content, "SELECT 'key' AS key, 'user.name' FROM rows LIMIT 1") == [["key", "user.name"]]


def test_members_of_a_map_have_columns_as_explored() -> None:
    content = json.dumps({f"u{n}": {"age": n, "home": {"city": "Rome"}} for n in range(60)})
    assert "*.home.city" in explored(content)
    assert rows(content, 'SELECT count("*.home.city"), max("*.age") FROM rows') == [[60, 59]]


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_columns_of_text_with_separators_are_those_that_are_explored(separator: str) -> None:
    names = ["id", "Name", "name", "größe (cm)", "a b"]
    lines = [names, ["1", "A", "a", "5", "x"], ["2", "B", "b", "6", "y"]]
    text = "\n".join(map(separator.join, lines)) + "\n"
    made = ExploreProcessor(MemoryScratch()).process(text.encode(), ExploreParams())
    printed = json.loads(bytes(made.content))["columns"]
    assert printed == names
    values = [rows(text, f"SELECT {quoted(name)} FROM rows LIMIT 1")[0][0] for name in printed]
    assert values == [1, "A", "a", 5, "x"]


def test_a_column_beyond_those_that_are_loaded_can_be_named() -> None:
    content = json.dumps([{f"k{n}": n for n in range(250)}])
    assert rows(content, "SELECT k249 FROM rows") == [[249]]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("orders[].user.nam", '"user.name"'), ("usr.name", '"user.name"'), ("ide", "id"), ("totl", "id")],
)
def test_a_name_that_is_none_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    content = json.dumps({"total": 1, "orders": [{"id": 1, "user": {"name": "Ann"}}]})
    with pytest.raises(
        ProcessingError, match=r"no such column: .*the table is rows \(the elements of orders\)"
    ) as error:
        run_query(content, f"SELECT {quoted(name)} FROM rows")
    listed = str(error.value).partition("its columns are ")[2]
    assert nearest in listed.split(", and text")[0].split(", ")[:2]


def test_an_array_in_a_row_is_not_summed_up_as_a_number() -> None:
    content = json.dumps({"orders": [{"lines": [{"price": 1}, {"price": 2}]}]})
    with pytest.raises(ProcessingError, match=r"holds text, e\.g\. '\[1,2\]': .*give the path"):
        run_query(content, 'SELECT sum("lines[].price") FROM rows')
    assert rows(content, "SELECT sum(price) FROM rows", path="orders.lines") == [[3]]
