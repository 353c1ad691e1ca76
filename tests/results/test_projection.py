"""A projection gives the fields that were asked for, byte for byte, and says which are not there."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import ProjectionMode, ProjectionParams
from headgate.results.json_paths import resolve_path
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.projection import ProjectionProcessor

USERS = (
    b'{"count": 2, "users": [{"id": 1, "name": "Ann", "home": {"city": "Rome", "zip": "00100"}},'
    b' {"name": "Bob", "id": 2, "tags": ["x", "y"]}]}'
)


def project(content: bytes, *fields: str, exclude: tuple[str, ...] = ()) -> bytes:
    return bytes(result_of(content, ProjectionParams(fields=fields, exclude=exclude)).content[:])


def result_of(content: bytes | mmap.mmap, params: ProjectionParams) -> ProcessorResult:
    return ProjectionProcessor().process(content, params)


def test_included_fields_are_all_that_is_left() -> None:
    person = b'{"name": "Ann", "email": "a@x", "age": 31, "city": "Rome"}'
    assert project(person, "name", "email") == b'{"name":"Ann","email":"a@x"}'


def test_excluded_fields_are_all_that_is_gone() -> None:
    person = b'{"name": "Ann", "password": "p", "ssn": 1, "age": 31}'
    assert project(person, exclude=("password", "ssn")) == b'{"name":"Ann","age":31}'


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        (["users.name"], b'{"users":[{"name":"Ann"},{"name":"Bob"}]}'),
        (["users[].name"], b'{"users":[{"name":"Ann"},{"name":"Bob"}]}'),
        (["users.*.name"], b'{"users":[{"name":"Ann"},{"name":"Bob"}]}'),
        (["users.home.city"], b'{"users":[{"home":{"city":"Rome"}},{}]}'),
        (["users.home"], b'{"users":[{"home":{"city": "Rome", "zip": "00100"}},{}]}'),
        (["users.tags", "users.id"], b'{"users":[{"id":1},{"id":2,"tags":["x", "y"]}]}'),
        (["users.name", "users.id"], b'{"users":[{"id":1,"name":"Ann"},{"name":"Bob","id":2}]}'),
        (["users.home.zip", "users.home"], b'{"users":[{"home":{"city": "Rome", "zip": "00100"}},{}]}'),
        (["count", "users.home.zip"], b'{"count":2,"users":[{"home":{"zip":"00100"}},{}]}'),
        (["users[0].name"], b'{"users":[{"name":"Ann"}]}'),
        (["users.1.name"], b'{"users":[{"name":"Bob"}]}'),
        (["/users/1/name"], b'{"users":[{"name":"Bob"}]}'),
        (["users[-1].tags[-1]"], b'{"users":[{"tags":["y"]}]}'),
        (["users[-1].id", "users.name"], b'{"users":[{"name":"Ann"},{"name":"Bob","id":2}]}'),
    ],
)
def test_fields_are_found_through_arrays_and_merged(fields: list[str], left: bytes) -> None:
    assert project(USERS, *fields) == left


def test_a_parent_is_kept_whole_with_its_spacing() -> None:
    assert project(b'{"user": {"a" : [1,  2]}, "b": 1}', "user") == b'{"user":{"a" : [1,  2]}}'


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("users.home", b'[{"id":1,"name":"Ann"},{"name": "Bob", "id": 2, "tags": ["x", "y"]}]'),
        ("users[0]", b'[{"name": "Bob", "id": 2, "tags": ["x", "y"]}]'),
        ("users.1", b'[{"id": 1, "name": "Ann", "home": {"city": "Rome", "zip": "00100"}}]'),
        ("users[]", b"[]"),
        ("users.*.*", b"[{},{}]"),
        ("users.tags[0]", b'["y"]'),
    ],
)
def test_what_is_excluded_leaves_the_rest_where_it_was(exclude: str, left: bytes) -> None:
    path = "users[1].tags" if "tags" in exclude else "users"
    assert json.loads(resolve_path(project(USERS, exclude=(exclude,)), path).value[:]) == json.loads(left)


def test_exclusions_apply_inside_what_is_included_by_the_positions_of_the_content() -> None:
    assert (
        project(USERS, "users.home", exclude=("users.home.zip",))
        == b'{"users":[{"home":{"city":"Rome"}},{}]}'
    )
    assert project(USERS, "users[1]", exclude=("users[1].tags",)) == b'{"users":[{"name":"Bob","id":2}]}'
    assert project(USERS, "count", "users", exclude=("users",)) == b'{"count":2}'


def test_mode_exclude_leaves_out_the_fields() -> None:
    result = result_of(
        b'{"a": 1, "b": 2, "c": 3}',
        ProjectionParams(fields=("a",), exclude=("b",), mode=ProjectionMode.EXCLUDE),
    )
    assert result.content == b'{"c":3}'
    assert result.metadata == {"mode": "exclude", "fields": ["a", "b"]}


def test_values_come_out_byte_for_byte_and_the_last_of_two_keys_counts() -> None:
    digits = b"9" * 400
    content = b'{"big": %b, "far": 1e400, "text": "\\u00e9\\/\xff", "far": 1.50, "x": 0}' % digits
    assert project(content, "big", "far", "text") == b'{"big":%b,"far":1.50,"text":"\\u00e9\\/\xff"}' % digits


def test_names_apply_to_each_element_of_an_array_at_the_top() -> None:
    assert (
        project(b'[{"a": 1, "b": 2}, {"b": 3}, 5, null, [{"a": 4}]]', "a") == b'[{"a":1},{},{},{},[{"a":4}]]'
    )
    assert project(b'[{"a": 1, "b": 2}, 5, [{"a": 4}]]', exclude=("a",)) == b'[{"b":2},5,[{}]]'


def test_json_lines_stay_json_lines() -> None:
    lines = b'{"a": 1, "b": 2}\n\n{"b": 3}\r\n{"a": 4}'
    assert project(lines, "a") == b'{"a":1}\n{}\n{"a":4}\n'
    assert project(lines, exclude=("a",)) == b'{"b":2}\n{"b": 3}\n{}\n'
    assert project(lines, "[2]") == b'{"a": 4}\n'
    assert project(lines, "c") == b"{}\n"
    assert project(lines, exclude=("c",)) == lines


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"plain words",
        b"42",
        b'"a"',
        b"[INFO] a: 1\n",
        b'{"a": 1',
        b'{"a": 1}\n[2]',
        b"\x00\xff",
        b'{"a": "\\ud800"}',
    ],
)
def test_text_passes_unchanged(text: bytes) -> None:
    result = result_of(text, ProjectionParams(fields=("a",)))
    assert (result.content, result.applied) == (text, False)


def test_fields_that_are_not_there_are_named_with_the_nearest_that_are() -> None:
    result = result_of(USERS, ProjectionParams(fields=("users.nmae", "count", "usrs")))
    assert result.content == b'{"count":2}'
    assert result.metadata["fields_not_found"] == ["users.nmae", "usrs"]
    assert result.metadata["nearest_fields"]["users.nmae"][0] == "users.name"
    assert result.metadata["nearest_fields"]["usrs"][0] == "users"


def test_nothing_found_is_an_empty_object_or_array() -> None:
    assert project(USERS, "users.nmae") == b"{}"
    assert project(b'[{"a": 1}]', "b") == b"[]"
    assert project(USERS, exclude=("users.nmae",)) == USERS


def test_a_field_of_no_elements_is_not_called_wrong() -> None:
    result = result_of(b'{"users": []}', ProjectionParams(fields=("users.name",)))
    assert (result.content, "fields_not_found" in result.metadata) == (b'{"users":[]}', False)


def test_the_whole_is_kept_but_not_excluded() -> None:
    assert project(USERS, "$") == USERS
    with pytest.raises(ProcessingError, match="nothing would be left"):
        project(USERS, exclude=("$",))


def test_parameters_that_name_no_field_or_too_many_are_refused() -> None:
    with pytest.raises(ProcessingError, match="at least one"):
        project(USERS)
    with pytest.raises(ProcessingError, match="more than 1000"):
        project(USERS, *(f"f{number}" for number in range(1_001)))
    with pytest.raises(ProcessingError, match="position 3"):
        project(USERS, "a..b")


def test_names_walk_through_many_arrays() -> None:
    content = b"[" * 150 + b'{"a": 1, "b": 2}' + b"]" * 150
    assert project(content, "a") == b"[" * 150 + b'{"a":1}' + b"]" * 150


def test_objects_among_numbers_and_words_are_projected() -> None:
    plain = b'-1,0,1e400,"{\\"a\\":1}",true,false,null'
    assert project(b'[%b,{"a":1,"b":2},[{"b":3}]]' % plain, "a") == b'[{},{},{},{"a":1},{},{},{},{"a":1},{}]'
    content = b'[%b,{"a":1,"b":2},[{"a":3}]]' % plain
    decoded = plain.replace(b'"{\\"a\\":1}"', b"{}")
    assert project(content, exclude=("a",)) == b'[%b,{"b":2},[{}]]' % decoded


def test_a_value_that_nests_deeply_is_kept_whole() -> None:
    deep = b"[" * 700 + b"]" * 700
    assert project(b'{"a": %b, "b": 1}' % deep, "a") == b'{"a":%b}' % deep


@pytest.mark.parametrize("depth", [900, 10_000])
def test_json_that_nests_too_deeply_is_refused(depth: int) -> None:
    with pytest.raises(ProcessingError, match="too deeply"):
        project(b"[" * depth + b'{"a": 1}' + b"]" * depth, "a")


def test_a_key_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(ProcessingError, match="no UTF-8"):
        project(b'{"\xff": 1}', exclude=("a",))


def test_elements_of_many_megabytes_are_projected_too() -> None:
    large = b'{"a": 1, "b": "%b"}' % (b"x" * 17_000_000)
    assert project(b"[%b, %b, 3]" % (large, large), "a") == b'[{"a":1},{"a":1},{}]'


def test_a_mapped_content_is_projected_and_can_be_closed() -> None:
    with mmap.mmap(-1, len(USERS)) as mapped:
        mapped[:] = USERS
        assert result_of(mapped, ProjectionParams(fields=("count",))).content == b'{"count":2}'


def test_more_fields_than_msgspec_types_well_are_kept_too() -> None:
    content = b"[{%b}]" % b",".join(b'"f%d":%d' % (number, number) for number in range(100))
    assert json.loads(project(content, *(f"f{number}" for number in range(0, 100, 2)))) == [
        {f"f{number}": number for number in range(0, 100, 2)}
    ]


_elements: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"a": 1, "b": {"c": 2, "d": 3}},
        {"b": {"d": 4}},
        {"b": None, "a": 5},
        {"b": [{"c": 1, "d": 2}, {"c": 3}, {"d": 4}]},
        {"b": []},
        {},
        [{"a": 6}, []],
        [[{"b": {"c": 9}}]],
        7,
        None,
        "b",
    ]
)


@given(
    st.lists(_elements, min_size=1, max_size=6),
    st.sampled_from(["a", "b", "b.c", "b[].c", "b.*", "b[0]", "b[-1].d", "[].*"]),
    st.sampled_from(ProjectionMode),
)
@settings(max_examples=30)
def test_an_array_of_any_length_is_projected_like_its_elements(
    few: list[Any], field: str, mode: ProjectionMode
) -> None:
    params = ProjectionParams(fields=(field,), mode=mode)
    # Every field is found in the first.
    first = {"a": 0, "b": [{"c": 0, "d": 0}]}
    one_by_one = [elements_left([first, element], params)[1] for element in [first, *few]]
    times = 600 // len(one_by_one)
    assert elements_left([first, *few] * times, params) == one_by_one * times


def elements_left(elements: list[Any], params: ProjectionParams) -> list[Any]:
    left: list[Any] = json.loads(result_of(json.dumps(elements).encode(), params).content[:])
    return left


@given(
    st.lists(_elements, min_size=1, max_size=6), st.sampled_from(["a", "b", "b.c", "b[].d", "[].*", "b.c.x"])
)
@settings(max_examples=40)
def test_what_is_included_reads_as_before_and_what_is_excluded_is_gone(values: list[Any], field: str) -> None:
    content = json.dumps([{"a": 0, "b": [{"c": 0, "d": 0}]}, *values]).encode()
    if field != "b.c.x":
        assert resolve_path(project(content, field), field).value == resolve_path(content, field).value
        assert project(project(content, field), field) == project(content, field)
    result = result_of(project(content, exclude=(field,)), ProjectionParams(exclude=(field,)))
    assert not result.applied


@pytest.mark.parametrize("key", ["é", "naïve", "名前", "a"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_name_in_any_script_is_found_and_nothing_beside_it(key: str, ascii_only: bool) -> None:  # noqa: FBT001
    content = json.dumps([{key: 0, "other": 1}], ensure_ascii=ascii_only).encode()
    left = ProjectionProcessor().process(content, ProjectionParams(fields=(key,))).content
    assert json.loads(left[:]) == [{key: 0}]
