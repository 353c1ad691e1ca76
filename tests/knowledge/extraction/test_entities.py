"""What is found in a text, and what is not."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.data_model import NewEntity
from headgate.knowledge.extraction.extractor import extract
from headgate.knowledge.extraction.name_matching import KnownEntity, KnownNames
from testkit.labelled_entities import chunk


def entities(*texts: str, known: KnownNames | None = None) -> dict[str, NewEntity]:
    return {entity.name: entity for entity in extract([chunk(text) for text in texts], known)[0]}


def types(*texts: str, known: KnownNames | None = None) -> dict[str, str]:
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
        ("Willem den Boer joined in May.", {"Willem den Boer": "PERSON"}),
        ("The contract with Kessler von Arnim GmbH was signed.", {"Kessler von Arnim GmbH": "ORG"}),
        ("A. Set NODE_SEA_BLOB first.\nB. List the users.\nC. State the reason.", {}),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Die Police HV-2025-77341 der Hanseatischen Assekuranz AG gilt für Schäden und ist bezahlt.",
            {"Hanseatischen Assekuranz AG"},
        ),
        (
            "Das ist der Vertrag der Elbe Transport GmbH und der Firma Kessler GmbH.",
            {"Elbe Transport GmbH", "Kessler GmbH"},
        ),
        ("Die Bedingungen von Kessler AG gelten für den Kauf der Ware und sind zu lesen.", {"Kessler AG"}),
        ("Wir sind für Sie da: Telefon 040 12345, das Büro ist in der Speicherstraße 12.", set()),
        ("Der Motor ist vom Typ 4, mit der Rechnung 4711 bezahlt und wird in die Halle 3 geliefert.", set()),
        ("Telefon 12345\nTyp 4\nHauptstr 5\nSeite 14", set()),
        ("Die Umstellung auf PostgreSQL 16 ist für den Herbst geplant und wird geprüft.", {"PostgreSQL"}),
        (
            "Peter van der Berg und Ursula von der Leyen sind mit dem Zug gefahren.",
            {"Peter van der Berg", "Ursula von der Leyen"},
        ),
    ],
)
def test_german_nouns_with_a_number_and_articles_before_a_name_are_no_names(
    text: str, expected: set[str]
) -> None:
    assert set(entities(text)) == expected


def test_a_noun_before_a_number_is_a_product_in_english_only() -> None:
    assert types("We moved to Orbital 7 last week.") == {"Orbital": "PRODUCT"}
    assert types("Wir sind auf die Zentrale 7 und das Lager 3 umgestiegen.") == {}


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
    known = KnownNames([KnownEntity("VENDOR", "Zarquon", ("Zarquon Tools",)), KnownEntity("ORG", "ITW")])
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
    (found,) = entities(
        text, known=KnownNames([KnownEntity("ORG", name), KnownEntity("ORG", "we think")])
    ).values()
    assert [" ".join(text[one.start : one.end].split()).lower() for one in found.mentions] == [
        name.lower()
    ] * 2


def test_a_known_name_that_is_a_word_needs_its_capital() -> None:
    known = KnownNames([KnownEntity("ORG", "Target")])
    (found,) = entities("we target growth, says Target", known=known).values()
    assert [one.start for one in found.mentions] == [23]


def test_a_known_name_inside_a_longer_name_is_not_that_one() -> None:
    known = KnownNames([KnownEntity("ORG", "Halden")])
    assert set(entities("They pay Halden Insurance Group.", known=known)) == {"Halden Insurance Group"}
    assert set(entities("They pay Halden Ltd.", known=known)) == {"Halden"}


def test_a_known_name_of_two_entities_says_nothing() -> None:
    known = KnownNames(
        [KnownEntity("ORG", "Halden Foods", ("Halden",)), KnownEntity("ORG", "Halden Works", ("Halden",))]
    )
    assert entities("we pay halden", known=known) == {}
    namesakes = KnownNames([KnownEntity("VENDOR", "Zarquon"), KnownEntity("PRODUCT", "Zarquon")])
    assert entities("we pay zarquon", known=namesakes) == {}


def test_of_two_known_names_that_differ_in_case_the_one_that_is_written_is_meant() -> None:
    known = KnownNames([KnownEntity("ORG", "Zarquon"), KnownEntity("PRODUCT", "Tool", ("ZARQUON",))])
    assert set(entities("we use ZARQUON", known=known)) == {"Tool"}
    assert set(entities("we use Zarquon", known=known)) == {"Zarquon"}
    assert entities("we use zarquon", known=known) == {}


FERNWALL = KnownEntity("VENDOR", "Fernwall Networks Inc.", ("Fernwall",))


@pytest.mark.parametrize(
    "text",
    [
        "They pay Fernwall Networks.",
        "FERNWALL NETWORKS was paid.",
        "Fernwall Networks Incorporated was paid.",
        "Fernwall Networks Inc was paid.",
        "Fernwall Networks, Inc. was paid.",
    ],
)
def test_a_known_company_is_also_called_by_its_name_without_the_legal_form(text: str) -> None:
    assert set(entities(text, known=KnownNames([FERNWALL]))) == {"Fernwall Networks Inc."}


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (FERNWALL, "They pay Fernwall Networks GmbH."),
        (KnownEntity("VENDOR", "Delta Ltd"), "They walked along the delta, and in the Delta Quarter."),
        (KnownEntity("VENDOR", "Target Corp"), "Target dates were agreed."),
        (KnownEntity("VENDOR", "Berlin AG"), "She lives in Berlin."),
        (KnownEntity("PRODUCT", "Delta SE"), "They pay Delta."),
    ],
)
def test_what_may_mean_something_else_is_not_the_known_company(known: KnownEntity, text: str) -> None:
    assert known.name not in entities(text, known=KnownNames([known]))


def test_a_name_without_its_legal_form_is_none_of_two_known_companies() -> None:
    two = [KnownEntity("VENDOR", "Fernwall Networks Inc."), KnownEntity("VENDOR", "Fernwall Networks GmbH")]
    text = "They are based in Oslo. The supplier Fernwall Networks was founded by Tom Becker."
    assert "Fernwall Networks" in entities(text, known=KnownNames(two))
    one_is_called_so = [*two, KnownEntity("VENDOR", "Fernwall Networks")]
    (found,) = [
        one for one in entities(text, known=KnownNames(one_is_called_so)).values() if one.type == "VENDOR"
    ]
    assert found.name == "Fernwall Networks"


def test_whom_a_document_calls_by_a_known_name_it_also_calls_by_short_ones() -> None:
    known = KnownNames(
        [KnownEntity("VENDOR", "Fernwall Networks Inc."), KnownEntity("PERSON", "Tomas Beckerling")]
    )
    text = "Fernwall Networks Inc. hired Tomas Beckerling. He likes Fernwall. Beckerling said so."
    found = entities(text, known=known)
    assert {name: [text[at.start : at.end] for at in one.mentions] for name, one in found.items()} == {
        "Fernwall Networks Inc.": ["Fernwall Networks Inc.", "Fernwall"],
        "Tomas Beckerling": ["Tomas Beckerling", "Beckerling"],
    }
    assert (found["Fernwall Networks Inc."].aliases, found["Tomas Beckerling"].aliases) == (("Fernwall",), ())


def test_what_an_import_is_unsure_of_is_found_as_unsure() -> None:
    (found,) = entities(
        "we pay zarquon", known=KnownNames([KnownEntity("VENDOR", "Zarquon", (), 0.6)])
    ).values()
    assert (found.confidence, [one.confidence for one in found.mentions]) == (0.6, [0.6])


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
    found, relationships = extract([chunk(text) for text in texts], KnownNames([KnownEntity("ORG", "acme")]))
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
