"""A member is found and replaced in its text, and every other character stays where it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.json_scan import insert_first_member, object_members, remove_member, replace_member
from tests.protocol.json_spelling import JsonValue, Pen, objects, pens, values


@given(pens, objects)
def test_every_member_is_found_where_it_stands(pen: Pen, value: dict[str, JsonValue]) -> None:
    text = pen.space() + pen.value(value) + pen.space()
    found = list(object_members(text))
    assert {member.key: json.loads(text[member.start : member.end]) for member in found} == value
    assert [member.key for member in found] == list(value)
    assert all(text[member.start : member.end].strip() for member in found)


@given(pens, objects.filter(bool), values, st.integers(0, 100))
def test_replacing_a_value_keeps_every_other_character(
    pen: Pen, value: dict[str, JsonValue], fresh: JsonValue, which: int
) -> None:
    text = pen.value(value)
    found = list(object_members(text))
    member = found[which % len(found)]
    replaced = replace_member(text, member, json.dumps(fresh))
    assert replaced == text[: member.start] + json.dumps(fresh) + text[member.end :]
    assert json.loads(replaced) == value | {member.key: fresh}


@given(pens, objects.filter(bool), st.integers(0, 100))
def test_without_a_member_the_others_are_as_they_were(
    pen: Pen, value: dict[str, JsonValue], which: int
) -> None:
    spelled = {key: pen.value(item) for key, item in value.items()}
    text = pen.object(spelled)
    found = list(object_members(text))
    member = found[which % len(found)]
    shorter = remove_member(text, member)
    del spelled[member.key]
    assert {one.key: shorter[one.start : one.end] for one in object_members(shorter)} == spelled


@given(pens, objects, values)
def test_a_member_put_first_moves_the_others_and_changes_none(
    pen: Pen, value: dict[str, JsonValue], fresh: JsonValue
) -> None:
    text = pen.space() + pen.value(value)
    member = f'"a new member of this object":{json.dumps(fresh)}'
    longer = insert_first_member(text, member)
    assert json.loads(longer) == {"a new member of this object": fresh} | value
    assert longer.replace(member + ",", "", 1).replace(member, "", 1) == text


@pytest.mark.parametrize(
    "text", ["", "[]", '"a"', "{", '{"a"}', '{"a" 1}', '{"a":1', '{"a":1 "b":2}', '{"a":NaN}', "{a:1}", "{,}"]
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(object_members(text))


def test_numbers_of_any_length_are_carried() -> None:
    text = '{"a":' + "9" * 50_000 + ',"b":1}'
    first, second = object_members(text)
    assert (first.key, second.key) == ("a", "b")
