"""What a sentence says of two names."""

import pytest

from headgate.knowledge.extraction.extractor import extract
from headgate.knowledge.extraction.name_matching import KnownEntity, KnownNames
from testkit.labelled_entities import chunk


def stated(text: str) -> set[tuple[str, str, str]]:
    return {(one.source, one.type, one.target) for one in extract([chunk(text)])[1]}


A, B = "Halden Works Ltd", "Globex Corporation"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{A} acquired {B}.", (A, "ACQUIRED", B)),
        (f"{A} has recently bought {B}.", (A, "ACQUIRED", B)),
        (f"{A} was acquired by {B}.", (B, "ACQUIRED", A)),
        (f"{A} is a wholly owned subsidiary of {B}.", (A, "PART_OF", B)),
        (f"{A} is owned by {B}.", (A, "PART_OF", B)),
        (f"{A} owns {B}.", (B, "PART_OF", A)),
        (f"{A} partners with {B}.", (A, "PARTNER_OF", B)),
        (f"{A} and {B} are partners.", (A, "PARTNER_OF", B)),
        (f"{A} supplies {B}.", (A, "SUPPLIES", B)),
        (f"{A} is a supplier of {B}.", (A, "SUPPLIES", B)),
        (f"{A} is a customer of {B}.", (B, "SUPPLIES", A)),
        (f"{A} competes with {B}.", (A, "COMPETES_WITH", B)),
        (f"{A} invested in {B}.", (A, "INVESTED_IN", B)),
        (f"{A} uses QuickLedger 5.3.", (A, "USES", "QuickLedger")),
        (f"{A} makes QuickLedger 5.3.", (A, "MAKES", "QuickLedger")),
        (f"QuickLedger 5.3 is made by {A}.", (A, "MAKES", "QuickLedger")),
        (f"Maria Lindqvist works for {A}.", ("Maria Lindqvist", "WORKS_FOR", A)),
        (f"Maria Lindqvist, CEO of {A}, came.", ("Maria Lindqvist", "WORKS_FOR", A)),
        (f"Maria Lindqvist founded {A}.", ("Maria Lindqvist", "FOUNDED", A)),
        (f"{A} was founded by Maria Lindqvist.", ("Maria Lindqvist", "FOUNDED", A)),
        (f"{A} is headquartered in Oslo, Norway.", (A, "LOCATED_IN", "Oslo")),
        (f"{A} grew. It is based in Oslo.", (A, "LOCATED_IN", "Oslo")),
    ],
)
def test_a_verb_between_two_names_says_how_they_are_related(
    text: str, expected: tuple[str, str, str]
) -> None:
    assert stated(text) == {expected}


def test_a_known_vendor_does_what_organisations_do() -> None:
    known = KnownNames([KnownEntity("VENDOR", "zarquon"), KnownEntity("SUPPLIER", "Vogon Freight")])
    (one,) = extract([chunk("last year zarquon acquired vogon freight")], known)[1]
    assert (one.source, one.type, one.target) == ("zarquon", "ACQUIRED", "Vogon Freight")


def test_what_is_said_of_a_list_is_said_of_each_of_it() -> None:
    assert stated(f"Tessel Foods Inc supplies {A} and {B}.") >= {
        ("Tessel Foods Inc", "SUPPLIES", A),
        ("Tessel Foods Inc", "SUPPLIES", B),
    }


def test_two_names_in_one_sentence_are_mentioned_together() -> None:
    (one,) = extract([chunk(f"On Monday {A} came, and later {B} left.")])[1]
    assert (one.source, one.type, one.target, one.confidence) == (A, "MENTIONED_WITH", B, 0.5)


@pytest.mark.parametrize(
    "text", [f"{A} came. {B} left.", f"Near {A} lies the road to Oslo.", "Maria Lindqvist met Tom Becker."]
)
def test_other_names_are_not_related(text: str) -> None:
    assert stated(text) == set()


def test_what_is_known_better_is_not_also_a_mere_mention() -> None:
    text = f"{A} acquired {B}. Today {A} came, and later {B} left."
    assert stated(text) == {(A, "ACQUIRED", B)}
