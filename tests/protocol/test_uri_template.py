"""A template knows every URI that can be made from it, and is never slow to say so."""

import re
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.uri_template import LONGEST_TEMPLATE, LONGEST_URI, UriTemplate

RESERVED = ":/?#[]@!$&'()*+,;="
# Operator: what comes first, what parts the values, whether they are named, what may stand in them.
OPERATORS = {
    "": ("", ",", False, ""),
    "+": ("", ",", False, RESERVED),
    "#": ("#", ",", False, RESERVED),
    ".": (".", ".", False, ""),
    "/": ("/", "/", False, ""),
    ";": (";", ";", True, ""),
    "?": ("?", "&", True, ""),
    "&": ("&", "&", True, ""),
}
Value = str | list[str] | None


def expanded(operator: str, variables: list[tuple[str, bool, Value]]) -> str:
    """One expression with values, as section 3.2 of RFC 6570 says."""
    start, separator, named, kept = OPERATORS[operator]
    parts = []
    for name, explode, value in variables:
        if value is None or value == []:
            continue
        values = [quote(one, safe=kept + "~") for one in ([value] if isinstance(value, str) else value)]
        if explode and isinstance(value, list):
            parts += [f"{name}={one}" if named else one for one in values]
        else:
            joined = ",".join(values)
            parts.append(f"{name}={joined}" if named else joined)
    return start + separator.join(parts) if parts else ""


values = st.one_of(st.none(), st.text(max_size=5), st.lists(st.text(max_size=4), max_size=3))
names = st.sampled_from(["x", "y", "path", "user_id", "a.b"])
expressions = st.tuples(
    st.sampled_from(sorted(OPERATORS)),
    st.lists(st.tuples(names, st.booleans(), values), min_size=1, max_size=3, unique_by=lambda one: one[0]),
)
literals = st.text(st.sampled_from("ab/:.?#&=é -"), max_size=5)


@given(st.lists(st.tuples(literals, expressions), max_size=4), literals)
def test_every_uri_that_is_made_from_a_template_is_known(
    parts: list[tuple[str, tuple[str, list[tuple[str, bool, Value]]]]], last: str
) -> None:
    template, uri = "", ""
    for literal, (operator, variables) in parts:
        spelled = ",".join(name + "*" * explode for name, explode, _ in variables)
        template += f"{literal}{{{operator}{spelled}}}"
        uri += quote(literal, safe=RESERVED + "~") + expanded(operator, variables)
    assert UriTemplate(template + last).matches(uri + quote(last, safe=RESERVED + "~"))


# The same language in regular expressions, which are slow for some of it.
PATTERNS = {
    "{x}": "[^/?#]*",
    "{x*}": "[^?#]*",
    "{+x}": ".*",
    "{#x}": "(?:#.*)?",
    "{.x}": r"(?:\.[^/?#]*)?",
    "{;x}": "(?:;[^/?#]*)?",
    "{/x}": "(?:/[^/?#]*)?",
    "{/x,y}": "(?:/[^/?#]*){0,2}",
    "{/x*}": "(?:/[^?#]*)?",
    "{?x}": r"(?:\?x(?:=[^&#]*)?)?",
    "{?x,y}": r"(?:\?[xy](?:=[^&#]*)?(?:&[xy](?:=[^&#]*)?)?)?",
    "{&x}": "(?:&x(?:=[^&#]*)?)?",
    "{?x*}": r"(?:\?[^#]*)?",
}
pieces = st.one_of(
    st.sampled_from(sorted(PATTERNS)), st.text(st.sampled_from("ab/?"), min_size=1, max_size=3)
)
subjects = st.text(st.sampled_from("abxy/?#&=.;"), max_size=12)


@given(st.lists(pieces, max_size=5), subjects)
def test_nothing_else_is_known(template: list[str], uri: str) -> None:
    pattern = "".join(PATTERNS.get(piece) or re.escape(piece) for piece in template)
    assert UriTemplate("".join(template)).matches(uri) is (re.fullmatch(pattern, uri) is not None)


@pytest.mark.parametrize(
    ("template", "uri", "known"),
    [
        ("test://template/{id}/data", "test://template/123/data", True),
        ("test://template/{id}/data", "test://template/1/2/data", False),
        ("test://template/{id}/data", "test://template/123/date", False),
        ("file:///{+path}", "file:///a/b/c.txt", True),
        ("file:///{path*}", "file:///a/b/c.txt", True),
        ("file:///{path}", "file:///a/b/c.txt", False),
        ("users://{user-id}/x", "users://7/x", True),
        ("search://{q:3}", "search://abc", True),
        ("db://t{?limit,offset}", "db://t", True),
        ("db://t{?limit,offset}", "db://t?offset=2&limit=1", True),
        ("db://t{?limit,offset}", "db://t?page=1", False),
        ("db://t{?limit,offset}", "db://t?limit=1&offset=2&limit=3", False),
        ("note://ü/{x}", "note://%c3%bc/a", True),
        ("note://{x}", "note://ü", True),
        ("plain://uri", "plain://uri", True),
        ("plain://uri", "plain://uri/", False),
        ("", "", True),
        ("{x}", "", True),
        ("{+x}", "anything?at#all", True),
    ],
)
def test_templates_as_servers_write_them(template: str, uri: str, known: bool) -> None:  # noqa: FBT001 (a column)
    assert UriTemplate(template).matches(uri) is known


@pytest.mark.parametrize(
    "template",
    ["{", "}", "a{b", "a}b", "{}", "{a{b}}", "{!x}", "{=x}", "{x,}", "{x y}", "{ x }", "{x:}", "{x**}"],
)
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        UriTemplate(template)


def test_a_template_beyond_all_measure_is_refused_and_such_a_uri_unknown() -> None:
    with pytest.raises(ValueError, match="long"):
        UriTemplate("a" * (LONGEST_TEMPLATE + 1))
    assert UriTemplate("{+x}").matches("a" * LONGEST_URI)
    assert not UriTemplate("{+x}").matches("a" * (LONGEST_URI + 1))


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_template_or_refused(template: str, uri: str) -> None:
    try:
        known = UriTemplate(template).matches(uri)
    except ValueError:
        return
    assert known or template != uri or "%" in template


@pytest.mark.parametrize(
    "template",
    [
        "{a}b" * 500,
        "{+a}b" * 400 + "c",
        "{/a,b,c,d}" * 200 + "!",
        "{?a,aa,aaa,aaaa}" * 120 + "!",
        "{a}" * 680 + "!",
    ],
    ids=["simple", "reserved", "segments", "query", "adjacent"],
)
@pytest.mark.parametrize("piece", ["b", "/a", "?a=a&aa=b", "ab"])
def test_no_template_and_no_uri_make_it_slow(template: str, piece: str) -> None:
    uri = (piece * LONGEST_URI)[:LONGEST_URI]
    parsed = UriTemplate(template)
    started = time.process_time()
    parsed.matches(uri)
    # Milliseconds; trying all ways to part the URI would take longer than anybody lives.
    assert time.process_time() - started < 2


def test_it_says_how_particular_it_is() -> None:
    assert UriTemplate("a://b/{x}").fixed == 6
    assert UriTemplate("a://{x}/{y}").fixed < UriTemplate("a://b/{y}").fixed
