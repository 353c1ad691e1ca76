"""A fingerprint is the same for all spellings of one call, and another one for every other call."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.idempotency_key import canonical, fingerprint

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé\U0001f600", max_size=2), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":1}', b'{"a":10e-1}'),
        (b'{"a":1,"b":2}', b'{ "b" : 2, "a" : 1 }'),
        (b'{"a":{"c":[1,{"e":0,"d":-0.0}]}}', b'{"a":{"c":[1.0,{"d":0,"e":0}]}}'),
        (b'{"a":"\\u00e9\\n"}', '{"a":"é\\n"}'.encode()),
        (b'{"a":9007199254740992}', b'{"a":9007199254740992.0}'),
        (b"", b"{}"),
    ],
)
def test_spellings_of_the_same_arguments_are_the_same_call(one: bytes, other: bytes) -> None:
    assert fingerprint("bank", "pay", one) == fingerprint("bank", "pay", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":2}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":true}'),
        (b'{"a":0}', b'{"a":false}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[1,2]}', b'{"a":[2,1]}'),
        (b'{"a":[[1],2]}', b'{"a":[1,[2]]}'),
        # A double cannot tell these apart.
        (b'{"a":9007199254740993}', b'{"a":9007199254740992}'),
        (b'{"a":1180591620717411303424}', b'{"a":1180591620717411303425}'),
        (b'{"a":9007199254740993}', b'{"a":"integer 9007199254740993"}'),
        # What cannot be read is compared as it is.
        (b'{"a":1e999}', b'{"a":1e998}'),
        (b"{", b"{ "),
    ],
)
def test_other_arguments_are_another_call(one: bytes, other: bytes) -> None:
    assert fingerprint("bank", "pay", one) != fingerprint("bank", "pay", other)


def test_another_server_or_tool_is_another_call() -> None:
    marks = {fingerprint(*parts, b"{}") for parts in (("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a"))}
    assert len(marks) == 4


@pytest.mark.parametrize(
    ("number", "written"),
    [
        # The spellings of RFC 8785 for doubles at the edges of its rules.
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1e23", "1e+23"),
        ("333333333.33333329", "333333333.3333333"),
        ("5e-324", "5e-324"),
        ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
        ("295147905179352830000.0", "295147905179352830000"),
        ("-0.0", "0"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
    ],
)
def test_numbers_are_written_as_the_standard_has_it(number: str, written: str) -> None:
    assert canonical(number.encode()) == written.encode()


def test_members_stand_in_the_order_of_the_standard() -> None:
    # A character beyond the first 65,536 comes before U+FB33 by its UTF-16 units.
    document = '{"\u20ac":1,"\\r":2,"\ufb33":3,"1":4,"\U0001f600":5,"\u0080":6,"\u00f6":7}'
    values = list(json.loads(canonical(document.encode())).values())
    assert values == [2, 4, 6, 7, 1, 5, 3]


@given(value=VALUES)
@settings(max_examples=60)
def test_any_spelling_of_any_value_has_one_fingerprint(value: Any) -> None:
    spellings = (
        json.dumps(value),
        json.dumps(value, indent=3, ensure_ascii=False),
        msgspec.json.encode(_turned(value)).decode(),
    )
    assert len({fingerprint("s", "t", spelling.encode()) for spelling in spellings}) == 1


@given(one=VALUES, other=VALUES)
@settings(max_examples=60)
def test_two_values_have_one_fingerprint_only_if_they_are_equal(one: Any, other: Any) -> None:
    same = fingerprint("s", "t", json.dumps(one).encode()) == fingerprint(
        "s", "t", json.dumps(other).encode()
    )
    assert same == _equal(one, other)


def _turned(value: Any) -> Any:
    """With the members of each object in the other order."""
    if isinstance(value, dict):
        return {name: _turned(value[name]) for name in reversed(value)}
    return [_turned(element) for element in value] if isinstance(value, list) else value


def _equal(one: Any, other: Any) -> bool:
    """As JSON has it: truth is no number; integers beyond doubles are equal to themselves alone."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        huge = [isinstance(number, int) and abs(number) > 2**53 for number in (one, other)]
        return one == other and huge[0] == huge[1] and not math.isnan(one)
    return type(one) is type(other) and bool(one == other)


def test_very_many_values_are_compared_byte_for_byte() -> None:
    many = b"[" + b",".join([b"1"] * 100_002) + b"]"
    assert canonical(many) == b"as it is: " + many
    assert canonical(many) != canonical(many.replace(b"1,", b"1, ", 1))


def test_the_members_of_a_large_object_are_sorted_like_those_of_a_small_one() -> None:
    names = [f"n{number * 7919 % 50_021}" for number in range(50_021)]
    document = b"{" + b",".join(b'"%s":1' % name.encode() for name in names) + b"}"
    assert list(msgspec.json.decode(canonical(document))) == sorted(names)
