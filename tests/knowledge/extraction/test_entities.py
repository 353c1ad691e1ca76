"""What is found in a text, and what is not."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.extraction import Known, Names, extract
from headgate.knowledge.values import NewEntity
from tests.knowledge.extraction.labelled import chunk


def entities(*texts: str, known: Names | None = None) -> dict[str, NewEntity]:
    return {entity.name: entity for entity in extract([chunk(text) for text in texts], known)[0]}


def types(*texts: str, known: Names | None = None) -> dict[str, str]:
    return {name: entity.type for name, entity in entities(*texts, known=known).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The invoice came from Halden Works Ltd last week.", {"Halden Works Ltd": "ORG"}),
        ("We met at the University of Tartu.", {"University of Tartu": "ORG"}),
        ("The plan of Fujimoto Seiki Co., Ltd. was read.", {"Fujimoto Seiki Co., Ltd": "ORG"}),
        ("It was signed by Dr. Okonkwo at noon.", {"Okonkwo": "PERSON"}),
        ("The plant is run by Maria Lindqvist.", {"Maria Lindqvist": "PERSON"}),
        ("Pieter van der Berg wrote it.", {"Pieter van der Berg": "PERSON"}),
        ("The parts come from Brazil by ship.", {"Brazil": "PLACE"}),
        ("They opened a shop in New York.", {"New York": "PLACE"}),
        ("Please install QuickLedger 5.3 first.", {"QuickLedger": "PRODUCT"}),
        ("They also have the Vulcano™ here.", {"Vulcano": "PRODUCT"}),
        ("Each desk has a Kyra X200 on it.", {"Kyra X200": "PRODUCT"}),
    ],
)
def test_a_name_is_known_by_its_form_or_by_what_stands_around_it(text: str, expected: dict[str, str]) -> None:
    assert types(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Open the Settings page and press Save. The Server restarts on Monday.",
        "This Agreement begins on 1 March. The Supplier shall inform the Customer.",
        "Send JSON over HTTP; see RFC 9110 and Section 4.2 of the Manual.",
        "## Data Processing Terms\n\nHuman Resources keeps the Records for Seven Years.",
        "NO WARRANTY IS GIVEN FOR ANY LOSS AS A RESULT.",
        "```python\nclient = Client('Globex Corporation')\n```",
        "Call `Acme Corporation` from https://acme.example/Acme Corp.",
        "",
    ],
)
def test_common_words_headings_and_code_are_no_names(text: str) -> None:
    assert entities(text) == {}


def test_a_mention_is_where_the_name_stands() -> None:
    text = "Today Halden Works Ltd moved. Later Halden Works Ltd closed."
    (found,) = entities("Nothing here.", text).values()
    assert [(one.chunk_index, text[one.start : one.end]) for one in found.mentions] == [
        (1, "Halden Works Ltd"),
        (1, "Halden Works Ltd"),
    ]
    assert all(0.5 <= one.confidence <= 1 for one in found.mentions)


def test_a_name_that_was_wrapped_is_one_name() -> None:
    text = "The contract for the new warehouse at the harbour went to Halden\nWorks Ltd after a long time."
    (found,) = entities(text).values()
    assert found.name == "Halden Works Ltd"
    assert text[found.mentions[0].start : found.mentions[0].end] == "Halden\nWorks Ltd"


@pytest.mark.parametrize(
    ("text", "name", "alias"),
    [
        ("Acme Corporation (Acme) paid.", "Acme Corporation", "Acme"),
        ("The International Freight Machines (IFM) paid.", "International Freight Machines", "IFM"),
        ("Halden Works Ltd paid. Then Halden left.", "Halden Works Ltd", "Halden"),
        ("Halden Works Ltd paid.", "Halden Works Ltd", "Halden Works"),
        ('Globex Corporation ("Globex") paid.', "Globex Corporation", "Globex"),
        ("We pay IFM (International Freight Machines) now.", "International Freight Machines", "IFM"),
        ("The National Health Service (NHS) paid.", "National Health Service", "NHS"),
    ],
)
def test_short_forms_and_initials_are_aliases(text: str, name: str, alias: str) -> None:
    assert alias in entities(text)[name].aliases


def test_spellings_of_a_legal_form_are_one_company() -> None:
    (found,) = entities(
        "Halden Works, Inc. paid. We know Halden Works Inc well. It is Halden Works Inc."
    ).values()
    assert (found.name, len(found.mentions)) == ("Halden Works Inc", 3)
    assert "Halden Works, Inc." in found.aliases


def test_a_defined_term_of_a_contract_is_no_alias() -> None:
    assert entities('Globex Corporation ("Supplier") paid.')["Globex Corporation"].aliases == ("Globex",)


def test_short_forms_are_mentions_of_the_long_one_in_every_chunk() -> None:
    found = entities(
        "Maria Lindqvist of Halden Works Ltd came.", "Lindqvist spoke. Halden agreed. HW did not."
    )
    assert [one.chunk_index for one in found["Maria Lindqvist"].mentions] == [0, 1]
    assert [one.chunk_index for one in found["Halden Works Ltd"].mentions] == [0, 1]
    # Others of that name stand in other documents.
    assert found["Maria Lindqvist"].aliases == ()


def test_a_short_form_of_two_companies_is_none_of_them() -> None:
    found = entities("Halden Works Ltd and Halden Foods GmbH came. Then Halden left.")
    assert {name: len(one.mentions) for name, one in found.items()} == {
        "Halden Works Ltd": 1,
        "Halden Foods GmbH": 1,
    }


def test_more_cues_give_more_confidence() -> None:
    one = entities("They spoke of Halden Logistics.")["Halden Logistics"]
    more = entities(
        "Halden Logistics, a company based in Oslo, was acquired. She works for Halden Logistics."
    )
    assert one.confidence < more["Halden Logistics"].confidence < 1


def test_known_names_are_found_in_any_case_as_whole_words() -> None:
    known = Names([Known("VENDOR", "Zarquon", ("Zarquon Tools",)), Known("ORG", "ITW")])
    text = "we pay zarquon tools; ZARQUON agrees. Zarquonia and itw differ. ITW too"
    found = entities(text, known=known)
    assert [text[one.start : one.end] for one in found["Zarquon"].mentions] == ["zarquon tools", "ZARQUON"]
    assert found["Zarquon"].type == "VENDOR"
    assert found["Zarquon"].confidence > 0.9
    assert [text[one.start : one.end] for one in found["ITW"].mentions] == ["ITW"]


@pytest.mark.parametrize(
    "name", [".NET Works", "AT&T Works", "Bank of the\u2019 North", "İstanbul Gaz", "c++ Tools"]
)
def test_a_known_name_may_have_any_letters_and_marks(name: str) -> None:
    text = f"we use {name.lower() if name.isascii() else name}, İ think\nand {name.replace(' ', chr(10))}"
    (found,) = entities(text, known=Names([Known("ORG", name), Known("ORG", "we think")])).values()
    assert [" ".join(text[one.start : one.end].split()).lower() for one in found.mentions] == [
        name.lower()
    ] * 2


def test_a_known_name_that_is_a_word_needs_its_capital() -> None:
    known = Names([Known("ORG", "Target")])
    (found,) = entities("we target growth, says Target", known=known).values()
    assert [one.start for one in found.mentions] == [23]


def test_a_known_name_inside_a_longer_name_is_not_that_one() -> None:
    known = Names([Known("ORG", "Halden")])
    assert set(entities("They pay Halden Insurance Group.", known=known)) == {"Halden Insurance Group"}
    assert set(entities("They pay Halden Ltd.", known=known)) == {"Halden"}


def test_a_known_name_of_two_entities_says_nothing() -> None:
    known = Names([Known("ORG", "Halden Foods", ("Halden",)), Known("ORG", "Halden Works", ("Halden",))])
    assert entities("we pay halden", known=known) == {}


pieces = st.sampled_from(
    [
        *"ABz.,;:()[]|'\"`#-&\n\t \x1f\u2019é中İß™",
        " Acme Inc. ",
        " Dr. Anna Berg",
        " (IBM) ",
        " of ",
        " and ",
        " acquired ",
        " Berlin",
        "```",
        "ǅ",
        " X200",
        " 4.2",
        " University of ",
        "It is based in ",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(pieces, max_size=40).map("".join), max_size=3))
def test_every_mention_lies_in_its_chunk_and_every_relationship_between_two_entities(
    texts: list[str],
) -> None:
    found, relationships = extract([chunk(text) for text in texts], Names([Known("ORG", "acme")]))
    places: list[tuple[int, int, int]] = []
    for entity in found:
        assert entity.name.strip() == entity.name != ""
        assert 0.5 <= entity.confidence <= 1
        assert entity.mentions
        places += [(one.chunk_index, one.start, one.end) for one in entity.mentions]
    assert all(0 <= start < end <= len(texts[index]) for index, start, end in places)
    places.sort()
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(places))
    names = {entity.name for entity in found}
    assert len(names) == len(found)
    assert all({one.source, one.target} <= names and one.source != one.target for one in relationships)
