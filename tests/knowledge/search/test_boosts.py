"""A score grows where a chunk fits in other ways too."""

import datetime
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.errors import ConfigError
from headgate.knowledge.data_model import ChunkRecord, Entity
from headgate.knowledge.options import ScoreBoosts
from headgate.knowledge.search.ranking import (
    QueryMentions,
    apply_boosts,
    boost_shares,
    clamp_score,
    name_spans,
    resolve_mentions,
    validate_boosts,
)

TODAY = datetime.date(2026, 11, 16)
ACME = Entity(id=1, type="ORG", name="Acme, Inc.", aliases=("Acme",))
BANK = Entity(id=2, type="COMPANY", name="Bank of America")
AMERICA = Entity(id=3, type="PLACE", name="America")
ADA = Entity(id=4, type="PERSON", name="Ada  Lovelace", external_id="77")
EVERYBODY = (ACME, BANK, AMERICA, ADA)


def chunk(*, doc_type: str = "", header: str = "a.md", category: str = "", date: str = "") -> ChunkRecord:
    return ChunkRecord(
        id=1,
        source_id=1,
        file="a.md",
        category=category,
        doc_type=doc_type,
        date=date,
        index=0,
        total=1,
        text="text",
        header=header,
        tokens=1,
    )


def asked(text: str) -> QueryMentions:
    return resolve_mentions(text, name_spans(text), EVERYBODY)


def fitting(text: str, chunk: ChunkRecord, *mentioned: int) -> dict[str, float]:
    return boost_shares(ScoreBoosts(), asked(text), chunk, mentioned, TODAY)


@pytest.mark.parametrize(
    "text",
    [
        "acme prices",
        "What does ACME charge?",
        "prices of Acme, Inc.",
        "is (Acme) cheap",
        "Acme's prices",
        "what about acme?",
        "Is it Acme, Inc.?",
        "the prices of \u201cAcme\u201d",
        "die Preise von \u201eAcme\u201c",
    ],
)
def test_a_vendor_is_named_in_any_case_and_within_any_sentence(text: str) -> None:
    assert asked(text).vendors == {ACME.id}
    assert fitting(text, chunk(), ACME.id) == {"vendor": 0.15}
    assert fitting(text, chunk(), BANK.id) == {}


def test_anybody_else_who_is_named_is_an_entity() -> None:
    assert asked("letters of ada lovelace").entities == {ADA.id}
    assert fitting("letters of ada lovelace", chunk(), ADA.id) == {"entity": 0.1}


def test_a_name_within_a_longer_name_is_not_meant() -> None:
    wanted = asked("fees of Bank of America")
    assert (set(wanted.vendors), set(wanted.entities)) == ({BANK.id}, set())
    both = asked("fees of Bank of America in America")
    assert (set(both.vendors), set(both.entities)) == ({BANK.id}, {AMERICA.id})


def test_a_number_is_not_taken_for_somebody() -> None:
    assert asked("page 77").entities == frozenset()


def test_words_that_say_nothing_are_no_names() -> None:
    assert {span.key for span in name_spans("tell us of it")} == {
        "tell",
        "tell us",
        "tell us of",
        "tell us of it",
    }


@pytest.mark.parametrize(
    ("text", "doc_type"),
    [
        ("the pdf on prices", "pdf"),
        ("PDFs", "PDF"),
        ("which spreadsheet has it", "csv"),
        ("travel policy", "policy"),
        ("travel policies", "Policy"),
        ("a service contract", "contract"),
        ("meeting notes of may", "meeting notes"),
    ],
)
def test_a_document_of_the_kind_that_is_named_fits(text: str, doc_type: str) -> None:
    assert fitting(text, chunk(doc_type=doc_type)) == {"doc_type": 0.1}


@pytest.mark.parametrize("doc_type", ["", "html", "contract"])
def test_a_document_of_another_kind_does_not(doc_type: str) -> None:
    assert fitting("the pdf with our policy", chunk(doc_type=doc_type)) == {}


@pytest.mark.parametrize(
    ("date", "share"),
    [
        ("2026-11-16", 0.05),
        ("2027-01-01", 0.05),
        ("2026-05-17", 0.05 * (1 - 183 / 365)),
        ("2025-11-16", 0.0),
        ("2001-01-01", 0.0),
        ("", 0.0),
        ("some day", 0.0),
    ],
)
def test_what_is_new_fits_more_than_what_is_old_or_has_no_date(date: str, share: float) -> None:
    assert fitting("anything", chunk(date=date)).get("recency", 0.0) == pytest.approx(share)


def test_a_chunk_fits_whose_headings_or_category_have_a_word_of_the_query() -> None:
    assert fitting("terminating early", chunk(header="a.md > Terms > How we terminate")) == {"topic": 0.08}
    assert fitting("terminating early", chunk(header="a.md > Prices")) == {}
    assert fitting("legal advice", chunk(category="Legal")) == {"topic": 0.08}


def test_neither_the_name_of_the_file_nor_an_empty_word_is_a_topic() -> None:
    assert fitting("a.md", chunk(header="a.md > Prices")) == {}
    assert fitting("find the new one", chunk(header="b.md > Find new ones")) == {}


def test_boosts_multiply_and_the_score_stays_within_zero_and_one() -> None:
    assert clamp_score(apply_boosts(0.9, {"vendor": 0.5})) == 1.0
    assert apply_boosts(0.5, {"vendor": 0.15, "topic": 0.08}) == pytest.approx(0.5 * 1.23)
    assert apply_boosts(0.5, {}) == 0.5
    assert clamp_score(-0.1) == 0.0


@settings(max_examples=60)
@given(score=st.floats(0, 1), other=st.floats(0, 1), given=st.lists(st.floats(0, 1), max_size=5))
def test_what_fits_as_well_stays_in_its_order(score: float, other: float, given: list[float]) -> None:
    fits = {str(place): share for place, share in enumerate(given)}
    low, high = sorted((score, other))
    assert apply_boosts(low, fits) <= apply_boosts(high, fits)
    assert low <= clamp_score(apply_boosts(low, fits)) <= 1


@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan, math.inf])
def test_a_boost_that_means_nothing_is_refused_by_name(share: float) -> None:
    with pytest.raises(ConfigError, match=r"the boost recency .* cannot be used"):
        validate_boosts(msgspec.structs.replace(ScoreBoosts(), recency=share))
