"""What an operator wants of single tools, and what a client calls itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.domain.client_profile import client_name
from headgate.domain.listing_mode import NO_CURATION, Curation


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("pay", ["pay"], ["Pay", "pay_more", "repay"]),
        ("pay*", ["pay", "pay_more"], ["repay"]),
        ("*", ["pay", "", "\u6771"], []),
        ("*pay", ["pay", "repay"], ["pays"]),
        ("a*b*c", ["abc", "a1b2c", "abcbc"], ["acb", "ab", "a1b2c3"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("**", ["pay", ""], []),
        # Nothing but the star stands for anything else than itself.
        ("do?", ["do?"], ["do1", "do"]),
        ("delete[all]", ["delete[all]"], ["deletea"]),
        ("a.b|c", ["a.b|c"], ["axb", "a.b", "c"]),
        ("[", ["["], ["a"]),
        ("", [""], ["pay"]),
        ("pay*more", ["pay\nmore"], ["pay\nmore\n"]),
        ("pay", [], ["pay\n"]),
    ],
)
def test_a_pattern_stands_for_the_names_that_it_fits(
    pattern: str, fitting: list[str], other: list[str]
) -> None:
    curation = Curation(pinned=("none of these", pattern), hidden=(pattern,))
    for name in fitting:
        assert curation.pins(name)
        assert curation.hides(name)
    for name in other:
        assert not curation.pins(name)
        assert not curation.hides(name)


def test_a_long_name_is_soon_compared_with_many_stars() -> None:
    # Each star more would take ten thousand times as long if all ways were tried.
    assert not Curation(hidden=("*a" * 20 + "*b",)).hides("a" * 10_000)


def test_what_hides_and_renames_nothing_is_idle_and_pins_are_not_asked() -> None:
    curation = Curation(
        pinned=("x",), hidden=("pay*", "pya", "[b]"), renamed={"pay": "send", "Look": "see", "b": "c"}
    )
    assert curation.without_effect({"pay_more", "look", "b"}) == Curation(
        hidden=("pya", "[b]"), renamed={"pay": "send", "Look": "see"}
    )
    assert curation.without_effect({"pay", "pya", "[b]", "Look", "b"}) == NO_CURATION


@given(st.text(), st.text())
def test_any_pattern_can_be_asked_about_any_name(pattern: str, name: str) -> None:
    assert Curation(hidden=(pattern,)).hides(name) in (True, False)
    assert not NO_CURATION.hides(name)


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (b'{"name":"Cursor","version":"1"}', "Cursor"),
        (b'{"name":"' + b"x" * 1000 + b'"}', "x" * 200),
        (b'{"version":"1"}', ""),
        (b'{"name":5}', ""),
        (b'{"name":null}', ""),
        (b"[]", ""),
        (b"", ""),
        (b"nonsense", ""),
        (b'{"name":"\xff"}', ""),
        (b'{"name":"x","y":' + b"[" * 2000 + b"]" * 2000 + b"}", ""),
        (b'{"name":"x","more":"' + b"x" * 5000 + b'"}', ""),
    ],
)
def test_a_client_is_called_what_it_says_if_that_can_be_read(info: bytes, name: str) -> None:
    assert client_name(info) == name


@given(st.binary(max_size=200))
def test_whatever_a_client_says_of_itself_never_fails(info: bytes) -> None:
    assert len(client_name(info)) <= 200
