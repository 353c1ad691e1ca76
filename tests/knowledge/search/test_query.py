"""The query itself tells which strategy fits it, and which words must stand in a text as they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.search.query import SearchQuery, SearchStrategy, phrases_of, route_query, with_phrases


@pytest.mark.parametrize(
    "text",
    [
        '"force majeure" clause',
        "\u201cforce majeure\u201d in contracts",
        "parse_config",
        "what does readFile return",
        "HttpClient::send",
        "main.py",
        "--data-dir option",
        "/etc/hosts entry",
        "https://example.com/a",
        "sales@example.com",
        "invoice INV-2026-001",
        "RFC9110 caching",
        "order 4711",
        "case 2026-117",
        "commit 9fceb02d0ae5",
        "IBM",
        "Kubernetes",
        "re.compile",
        "OPM Form 630",
        "form 12",
        "E1234",
        "v2.3.1",
        "upgrade to 2.3.1",
        "version 15",
        "CVE-2024-1234",
        "\u00a7 4.2",
        "section 4.2",
        "4.2",
        "0x80070005",
        "error 0x8007000E",
        "error 13",
        "snake_case_name",
    ],
)
def test_what_is_to_be_found_as_it_is_written_is_searched_by_words(text: str) -> None:
    assert route_query(text).strategy is SearchStrategy.BM25


@pytest.mark.parametrize(
    "text",
    [
        "contracts similar to the one with Acme",
        "something like a warranty",
        "clauses like this: the seller pays",
        "texts resembling a privacy notice",
        'similar to "force majeure"',
    ],
)
def test_a_wish_for_what_is_similar_is_searched_by_meaning(text: str) -> None:
    assert route_query(text).strategy is SearchStrategy.VECTOR


@pytest.mark.parametrize(
    "text",
    [
        "pricing",
        "termination notice period",
        "what did we agree with the supplier about late deliveries last year",
        "why does our gateway answer with error 5021 when a client sends parse_config twice",
        "results of 2025",
        "what does it look like?",
        "what is it",
        "to be or not to be",
        "e.g. prices",
        "3.5 percent",
    ],
)
def test_everything_else_is_searched_in_both_ways(text: str) -> None:
    assert route_query(text).strategy is SearchStrategy.HYBRID


def test_a_choice_is_told_with_its_reason() -> None:
    told = route_query('"force majeure"').notice
    assert (told.level, told.code) == ("info", "STRATEGY_CHOSEN")
    assert told.message == "Strategy 'bm25' was chosen for the query: it quotes a phrase."


@settings(max_examples=60)
@given(text=st.text(max_size=500))
def test_any_text_has_a_strategy(text: str) -> None:
    assert route_query(text).strategy in {SearchStrategy.HYBRID, SearchStrategy.BM25, SearchStrategy.VECTOR}


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ('"force majeure" clause', (("force", "majeure"),)),
        ('the "Net-30" and "late fee" terms', (("net", "30"), ("late", "fee"))),
        ("\u201cForce Majeure\u201d", (("force", "majeure"),)),
        ("\u201elange Fristen\u201c und \u201eEnde\u201c", (("lange", "fristen"), ("ende",))),
        ("\u201elange Fristen\u201d", (("lange", "fristen"),)),
        ("\u00abforce majeure\u00bb", (("force", "majeure"),)),
        ("\u00bbAcme AG\u00ab und \u00bbBeta SE\u00ab", (("acme", "ag"), ("beta", "se"))),
        ("\u00abAcme SA\u00bb et \u00abBeta SARL\u00bb", (("acme", "sa"), ("beta", "sarl"))),
        ("\u201eeins ohne Ende", ()),
        ('"a b" "a  B"', (("a", "b"),)),
        ('force majeure" clause', ()),
        ('"force majeure clause', ()),
        ('"a "late fee"', (("late", "fee"),)),
        ('"late fee" and "more', (("late", "fee"),)),
        ('5" pipe and 6" pipe', ()),
        ('"" and " "', ()),
        ('"..."', ()),
        ("no quotes", ()),
    ],
)
def test_only_what_stands_between_two_quotes_is_a_phrase(
    text: str, phrases: tuple[tuple[str, ...], ...]
) -> None:
    assert phrases_of(text) == phrases


def test_phrases_are_added_to_the_filters_and_the_text_stays() -> None:
    query = SearchQuery(
        text='"late fee" terms', filters=DocumentFilters(categories=("legal",), phrases=(("net", "30"),))
    )
    asked = with_phrases(query)
    assert asked.text == query.text
    assert asked.filters.categories == ("legal",)
    assert asked.filters.phrases == (("net", "30"), ("late", "fee"))
    assert with_phrases(asked) == asked
