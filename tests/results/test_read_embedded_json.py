"""JSON in a text, in a string or beside a text is reached by every tool, by the paths of explore."""

import json
from typing import Any

import pytest

from headgate.results.jobs import (
    ExploreParams,
    JobResult,
    PageUnit,
    ProjectionMode,
    ProjectionParams,
    QueryParams,
    ReadJob,
    ReadParams,
    SearchMode,
    SearchParams,
)
from headgate.results.read_result import read_result
from headgate.workers.sql.query_processor import QueryProcessor
from tests.results.sample_results import facts_of, parsed_result, result, text, texts_of

USERS = {
    "total": 3,
    "users": [
        {"name": f"n{number}", "mail": f"e{number}@{('x', 'gmail')[number % 2]}.org", "age": 20 + number}
        for number in range(3)
    ],
}
PLAIN = json.dumps(USERS)
# Each with what stands before the paths of USERS.
PLACES = {
    "prefix": (result(text(f"Here are the results:\n{PLAIN}")), ""),
    "trailing text": (result(text(f"Result: {PLAIN} That is all.")), ""),
    "event": (result(text(f"data: {PLAIN}\n\n")), ""),
    "fence": (result(text(f"I found:\n```json\n{json.dumps(USERS, indent=2)}\n```\nBye")), ""),
    "string": (result(text(json.dumps({"ok": True, "result": PLAIN}))), "result."),
    "twice": (result(text(json.dumps({"result": json.dumps({"inner": PLAIN})}))), "result.inner."),
    "fence in a string": (result(text(json.dumps({"text": f"See:\n```json\n{PLAIN}\n```"}))), "text."),
    "encoded twice": (result(text(json.dumps(PLAIN))), ""),
    "beside": (result(text("Three users"), text(PLAIN)), "[1]."),
    "beside a long text": (result(text("A long text.\n" * 500), text(PLAIN)), "[1]."),
}
each_place = pytest.mark.parametrize(("data", "start"), PLACES.values(), ids=PLACES.keys())


def looked(data: bytes, **more: Any) -> JobResult:
    return read_result(
        parsed_result(data), ReadJob(tool="proxy_read", cache_id="1", room=8000, **more), QueryProcessor()
    )


def render_text(data: bytes, **more: Any) -> Any:
    reply = looked(data, **more)
    assert reply.error is None
    return json.loads(texts_of(reply.result)[0])


def note(data: bytes, **more: Any) -> str:
    return texts_of(looked(data, **more).result)[-1]


@each_place
def test_explore_names_paths_that_all_the_others_take(data: bytes, start: str) -> None:
    paths = render_text(data, exploration=ExploreParams(max_depth=6))["paths"]
    name = f"{start}users[].name"
    assert paths[name]["type"] == "string"
    assert paths[f"{start}total"]["sample"] == 3
    names = ["n0", "n1", "n2"]
    assert render_text(data, reading=ReadParams(path=name)) == names
    assert render_text(data, path=name, search=SearchParams(pattern="n1")) == ["n1"]
    rows = render_text(
        data, query=QueryParams(sql="SELECT count(*), sum(age) FROM rows", path=f"{start}users")
    )
    assert rows["rows"] == [[3, 63]]
    assert _gathered(render_text(data, projection=ProjectionParams(fields=(name,)))) == names
    assert render_text(data, path=f"{start}users", projection=ProjectionParams(fields=("name",))) == [
        {"name": n} for n in names
    ]


def _gathered(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value
    return [name for member in members for name in _gathered(member)]


@each_place
def test_a_search_keeps_the_elements_that_match(data: bytes, start: str) -> None:
    found = render_text(data, path=f"{start}users", search=SearchParams(pattern="gmail"))
    assert [one["name"] for one in found] == ["n1"]


@pytest.mark.parametrize("place", sorted(PLACES.keys() - {"fence in a string", "beside a long text"}))
def test_a_search_without_a_path_opens_it_too(place: str) -> None:
    found = json.dumps(render_text(PLACES[place][0], search=SearchParams(pattern="gmail")))
    assert "n1" in found
    assert "n2" not in found


@each_place
def test_every_index_and_pointer_leads_into_it(data: bytes, start: str) -> None:
    pointer = "/" + start.replace("[1].", "1.").replace(".", "/") + "users/-1/name"
    for path in (
        f"{start}users[2].name",
        f"$.{start}users[2].name".replace("$.[", "$["),
        pointer.replace("-1", "2"),
    ):
        assert texts_of(looked(data, reading=ReadParams(path=path)).result)[0] == "n2"


def test_names_reach_the_only_json_among_texts_without_its_index() -> None:
    data, _ = PLACES["beside"]
    assert texts_of(looked(data, reading=ReadParams(path="users[0].name")).result)[0] == "n0"


def test_the_text_around_is_not_lost() -> None:
    data, _ = PLACES["fence"]
    assert texts_of(looked(data, search=SearchParams(pattern="I found")).result)[0] == "I found:"
    both = result(text(f"The gmail users:\n{PLAIN}"))
    assert "1 more in the text around" in note(both, search=SearchParams(pattern="gmail"))
    assert texts_of(looked(data, reading=ReadParams()).result)[0].startswith("I found:")
    by_element = render_text(data, reading=ReadParams(unit=PageUnit.ELEMENTS))
    assert by_element == USERS
    assert "without the text around it" in note(data, projection=ProjectionParams(fields=("total",)))


def test_a_filter_opens_a_string_only_where_a_field_leads_into_it() -> None:
    data = result(text(json.dumps({"kept": '{"a":1}', "result": '{"password":"x","name":"n"}'})))
    assert render_text(
        data, projection=ProjectionParams(exclude=("result.password",), mode=ProjectionMode.EXCLUDE)
    ) == {
        "kept": '{"a":1}',
        "result": {"name": "n"},
    }


def test_names_inside_of_strings_are_found_and_corrected() -> None:
    data, _ = PLACES["string"]
    found = render_text(data, search=SearchParams(pattern="mail", mode=SearchMode.STRUCTURE))
    assert found["paths"][0]["path"] == "result.users[].mail"
    refused = looked(data, reading=ReadParams(path="result.usres"))
    assert refused.error == "Nothing is at 'result.usres': the nearest keys at 'result' are 'users', 'total'."
    assert "nearest: result.users" in note(data, projection=ProjectionParams(fields=("users",)))


def test_names_with_dots_and_brackets_lead_into_strings() -> None:
    data = result(text(json.dumps({"a.b": json.dumps({"c[0]": [json.dumps({"d e": "found"})]})})))
    paths = render_text(data, exploration=ExploreParams(max_depth=6))["paths"]
    assert texts_of(looked(data, reading=ReadParams(path=list(paths)[-1])).result)[0] == '["found"]'
    assert texts_of(looked(data, reading=ReadParams(path="/a.b/c[0]/0/d e")).result)[0] == "found"


def test_many_texts_beside_json_are_told_together() -> None:
    data = result(*(text(f"Note {number}") for number in range(20)), text(PLAIN))
    assert render_text(data, exploration=ExploreParams())["count"] == 21
    assert texts_of(looked(data, reading=ReadParams(path="[20].total")).result)[0] == "3"


def test_a_filter_and_a_search_in_one_call_leave_both_facts() -> None:
    data, _ = PLACES["prefix"]
    reply = looked(
        data,
        projection=ProjectionParams(fields=("users.name", "users.age")),
        search=SearchParams(pattern="n[12]"),
    )
    assert json.loads(texts_of(reply.result)[0]) == {
        "users": [{"name": "n1", "age": 21}, {"name": "n2", "age": 22}]
    }
    output = facts_of(reply.result)
    assert output["projection"]["fields"] == ["users.name", "users.age"]
    assert (output["search"]["matches"], output["search"]["mode"]) == (2, "regex")
    # The mail is not among the fields, so it is not searched either.
    left = looked(
        data, projection=ProjectionParams(fields=("users.name",)), search=SearchParams(pattern="gmail")
    )
    assert facts_of(left.result)["search"]["matches"] == 0


def test_json_lines_stay_json_lines_and_strings_in_them_are_opened() -> None:
    lines = [json.dumps({"id": number, "p": json.dumps({"k": number}, indent=1)}) for number in range(3)]
    data = result(text("\n".join(lines)))
    left = texts_of(looked(data, projection=ProjectionParams(fields=("p.k",))).result)[0]
    assert [json.loads(line) for line in left.splitlines()] == [{"p": {"k": number}} for number in range(3)]
    assert render_text(data, reading=ReadParams(path="p.k")) == [0, 1, 2]
    found = render_text(data, search=SearchParams(pattern="^k$", mode=SearchMode.STRUCTURE))
    assert [one["path"] for one in found["paths"]] == ["p.k"]


def test_an_object_between_blank_lines_is_no_list() -> None:
    data = result(text('\ufeff\r\n{"a":"x"}\r\n'))
    assert texts_of(looked(data, reading=ReadParams(path="a")).result)[0] == "x"
    assert render_text(data, exploration=ExploreParams())["type"] == "object"


# Tables of text.

CSV = 'name;city;note\nA;Oslo;"a ""q""\nline; two"\nB;Rome;\n'


def csv_left(content: str, **more: Any) -> str:
    return texts_of(looked(result(text(content)), **more).result)[0]


@pytest.mark.parametrize(
    ("content", "fields", "left"),
    [
        (CSV, ("name", "note"), 'name;note\nA;"a ""q""\nline; two"\nB;\n'),
        (CSV, ("[].city", "/name"), "name;city\nA;Oslo\nB;Rome\n"),
        ("\ufeffid\tx.y\r\n1\ta\r\n2\tb\r\n", ("x.y",), "x.y\na\nb\n"),
        ("a,b\n1,2\n3\n4,5,6\n", ("b",), None),
        ("a|b\n1|2\n3|4\n", ("b",), "b\n2\n4\n"),
        ("id,unit price\n1,2\n", ("unit price",), "unit price\n2\n"),
        ("1,2\n3,4\n", ("1",), None),
    ],
)
def test_columns_of_csv_are_kept_by_name(content: str, fields: tuple[str, ...], left: str | None) -> None:
    """None is a text without a header, or with rows of different lengths: it passes unchanged."""
    shown_text = csv_left(content, projection=ProjectionParams(fields=fields))
    assert shown_text == (content if left is None else left)


def test_columns_are_left_out_and_unknown_ones_corrected() -> None:
    assert (
        csv_left(CSV, projection=ProjectionParams(exclude=("note",), mode=ProjectionMode.EXCLUDE))
        == "name;city\nA;Oslo\nB;Rome\n"
    )
    reply = looked(result(text(CSV)), projection=ProjectionParams(fields=("name", "cty")))
    assert "not found: cty (nearest: city" in texts_of(reply.result)[-1]


def test_rows_are_paged_whole_with_the_names_on_each_page() -> None:
    content = "id,text\n" + "".join(f'{n},"row\n{n}"\n' for n in range(50))
    visible: list[str] = []
    offset: int | None = 0
    while offset is not None:
        look_at = ReadJob(
            tool="proxy_filter",
            cache_id="1",
            room=100,
            offset=offset,
            projection=ProjectionParams(fields=("text",)),
        )
        reply = read_result(parsed_result(result(text(content))), look_at)
        page = texts_of(reply.result)[0]
        assert page.startswith("text\n")
        assert len(page) <= 100
        visible.append(page.removeprefix("text\n"))
        offset = facts_of(reply.result)["page"].get("next_offset")
    assert "\n".join(visible).count("row\n") == 50


def test_the_structure_of_csv_is_its_columns() -> None:
    found = render_text(
        result(text("id,name,price\n1,a,2\n2,,2.5\n")),
        search=SearchParams(pattern="i", mode=SearchMode.STRUCTURE),
    )
    assert found["paths"] == [
        {"path": "id", "types": ["integer"], "count": 2, "sample": "1"},
        {"path": "price", "types": ["integer", "number"], "count": 2, "sample": "2"},
    ]


def test_columns_are_filtered_and_searched_in_one_call() -> None:
    reply = looked(
        result(text(CSV)),
        projection=ProjectionParams(fields=("name", "city")),
        search=SearchParams(pattern="Rome"),
    )
    assert texts_of(reply.result)[0] == "B;Rome"
