"""Entities and relationships, from texts and from imports, are one or two, and leave; so in every store."""

import pytest

from headgate.knowledge.data_model import IngestedDocument, Mention, NewEntity, name_key
from headgate.knowledge.errors import InvalidGraph, UnresolvedEndpoints, VendorAmbiguous
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.interfaces import KnowledgeStore
from tests.knowledge.stores.conftest import Reopen
from tests.knowledge.stores.sample_documents import (
    START,
    Clock,
    all_entities,
    all_relationships,
    document,
    entity,
    related,
)


def about(file: str, *names: str, confidence: float = 0.9) -> IngestedDocument:
    """A document that speaks of these organisations."""
    spoken_of = [entity(name, 0, confidence=confidence) for name in names]
    return document(file, f"about {', '.join(names)}", entities=spoken_of)


async def named(store: KnowledgeStore, *names: str) -> list[int]:
    return [entity.id for entity in await store.find_by_keys([name_key(name) for name in names])]


# From texts.


async def test_an_entity_of_a_text_is_found_by_name_and_alias_in_any_case(store: KnowledgeStore) -> None:
    given = entity("Acme Corp", 0, 0, aliases=("ACME", "Acme Inc"), attributes={"a": [1, {"b": None}]})
    await store.replace_document(document("a.md", "Acme Corp", entities=[given]))
    [found] = await store.find_by_keys([name_key("ACME  corp")])
    assert (found.id, found.type, found.name, found.aliases) == (1, "ORG", "Acme Corp", ("ACME", "Acme Inc"))
    assert (found.confidence, found.attributes) == (0.9, {"a": [1, {"b": None}]})
    assert (found.external_id, found.updated) == ("", START)
    assert await named(store, "acme") == await named(store, "ACME INC", "acme corp") == [1]
    assert await named(store, "acm") == []
    assert await store.entities([1, 2]) == {1: found}


async def test_texts_that_speak_of_the_same_speak_of_one(store: KnowledgeStore) -> None:
    await store.replace_document(about("a.md", "Acme", "Bolt", confidence=0.7))
    await store.replace_document(about("b.md", "Bolt", "ACME", confidence=0.8))
    found = await all_entities(store)
    assert {one.name: (one.id, one.confidence, one.mentions) for one in found.values()} == {
        "Acme": (1, 0.8, 2),
        "Bolt": (2, 0.8, 2),
    }
    assert await store.mentioned_entities([1, 2, 3]) == {1: frozenset({1, 2}), 2: frozenset({1, 2})}


async def test_an_alias_names_the_same_and_aliases_are_united(store: KnowledgeStore) -> None:
    await store.replace_document(
        document("a.md", "x", entities=[entity("Acme Corporation", 0, aliases=("Acme",))])
    )
    await store.replace_document(
        document("b.md", "y", entities=[entity("ACME", 0, aliases=("Acme Co", "acme"))])
    )
    [found] = (await all_entities(store)).values()
    assert (found.name, found.aliases) == ("Acme Corporation", ("Acme", "Acme Co"))


async def test_another_type_is_another_entity(store: KnowledgeStore) -> None:
    await store.replace_document(
        document("a.md", "x", entities=[entity("Mercury", 0), entity("Mercury", 0, kind="PRODUCT")])
    )
    assert await named(store, "mercury") == [1, 2]
    assert await store.list_names(["PRODUCT"]) == [(2, "Mercury")]
    assert await store.list_names([]) == [(1, "Mercury"), (2, "Mercury")]
    assert await store.list_names(["PLACE"]) == []


async def test_a_vendor_is_one_in_whatever_case_its_type_is_written(store: KnowledgeStore) -> None:
    await store.import_graph(
        "list", [NewEntity(type="company", name="Lowell Works", aliases=("LW",), external_id="v1")], []
    )
    assert await store.list_names(["COMPANY"]) == [(1, "Lowell Works"), (1, "LW")]
    vendors = EntityLookup(store, store.revision)
    for name in ("lowell WORKS", "lw", "v1", "1", "Lowell-Works, Inc."):
        assert (await vendors.find_vendor(name)).id == 1


async def test_an_entity_stays_as_long_as_one_text_speaks_of_it(store: KnowledgeStore) -> None:
    await store.replace_document(about("a.md", "Acme", confidence=0.6))
    await store.replace_document(about("b.md", "acme", confidence=0.9))
    await store.remove_sources(["b.md"])
    [found] = (await all_entities(store)).values()
    assert (found.id, found.name, found.aliases, found.confidence, found.mentions) == (
        1,
        "Acme",
        (),
        0.6,
        1,
    )
    await store.replace_document(document("a.md", "about nobody"))
    assert await all_entities(store) == {}
    assert await named(store, "acme") == []
    assert await store.mentioned_entities([1, 2, 3]) == {}


async def test_the_name_of_an_entity_goes_with_the_text_that_gave_it(store: KnowledgeStore) -> None:
    await store.replace_document(
        document("a.md", "x", entities=[entity("Acme Corporation", 0, aliases=("Acme",))])
    )
    await store.replace_document(about("b.md", "ACME"))
    await store.remove_sources(["a.md"])
    [found] = (await all_entities(store)).values()
    assert (found.id, found.name, found.aliases) == (1, "ACME", ())
    assert await named(store, "acme corporation") == []


async def test_mentions_follow_their_chunks(store: KnowledgeStore) -> None:
    acme = [entity("Acme", 0, 1)]
    await store.replace_document(document("a.md", "Acme one", "Acme two", entities=acme))
    await store.replace_document(document("a.md", "something", "Acme one", entities=[entity("Acme", 1)]))
    assert await store.mentioned_entities([1, 2, 3]) == {1: frozenset({1})}
    assert (await store.entities([1]))[1].mentions == 1
    assert (await store.statistics()).mentions == 1


async def test_the_first_chunks_that_speak_of_an_entity_are_told_once_each(store: KnowledgeStore) -> None:
    twice = NewEntity(type="ORG", name="Acme", mentions=(Mention(2, 0, 4, 0.9), Mention(2, 9, 13, 0.9)))
    await store.replace_document(document("a.md", "one", "two", "three", entities=[twice]))
    await store.replace_document(
        document("b.md", "four", "five", entities=[entity("Acme", 0, 1), entity("Bolt", 0)])
    )
    assert await store.chunks_mentioning(1, 10) == [3, 4, 5]
    assert await store.chunks_mentioning(1, 2) == [3, 4]
    assert await store.chunks_mentioning(99, 2) == []
    await store.remove_sources(["a.md"])
    assert await store.chunks_mentioning(1, 10) == [4, 5]


async def test_a_mention_beyond_the_document_is_none(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "x", entities=[entity("Acme", 0, 5)]))
    assert (await store.entities([1]))[1].mentions == 1


async def test_relationships_of_a_text_leave_with_it(store: KnowledgeStore) -> None:
    named_here = [entity("Acme", 0), entity("Bolt", 0)]
    supplies = related("Acme", "SUPPLIES", "bolt")
    await store.replace_document(document("a.md", "x", entities=named_here, relationships=[supplies]))
    await store.replace_document(about("b.md", "Acme", "Bolt"))
    [edge] = await store.edges([2])
    assert tuple(edge) == (1, 1, 2, "SUPPLIES", 0.9)
    await store.remove_sources(["a.md"])
    assert await store.edges([1, 2]) == []
    assert set(await all_entities(store)) == {"Acme", "Bolt"}


async def test_what_several_say_is_one_relationship_with_the_largest_confidence(
    store: KnowledgeStore,
) -> None:
    both = [entity("Acme", 0), entity("Bolt", 0)]
    for file, confidence in (("a.md", 0.5), ("b.md", 0.9), ("c.md", 0.7)):
        said = related("Acme", "SUPPLIES", "Bolt", confidence)
        await store.replace_document(document(file, "x", entities=both, relationships=[said]))
    assert [tuple(edge) for edge in await store.edges([1])] == [(1, 1, 2, "SUPPLIES", 0.9)]
    await store.remove_sources(["b.md"])
    assert (await store.relationships([1]))[1].confidence == 0.7
    await store.remove_sources(["a.md", "c.md"])
    assert await store.relationships([1]) == {}


async def test_what_a_text_says_of_nobody_certain_is_left_out(store: KnowledgeStore) -> None:
    await store.replace_document(
        document("a.md", "x", entities=[entity("Mercury", 0), entity("Mercury", 0, kind="PRODUCT")])
    )
    said = [
        related("Acme", "LIKES", "Nobody"),
        related("Acme", "LIKES", "Mercury"),
        related("Acme", "LIKES", "ACME"),
    ]
    await store.replace_document(document("b.md", "y", entities=[entity("Acme", 0)], relationships=said))
    assert await all_relationships(store) == set()


async def test_a_text_may_relate_whom_others_speak_of(store: KnowledgeStore) -> None:
    await store.replace_document(about("a.md", "Bolt"))
    await store.replace_document(
        document("b.md", "y", entities=[entity("Acme", 0)], relationships=[related("acme", "OWNS", "BOLT")])
    )
    assert await all_relationships(store) == {(2, 1, "OWNS")}
    await store.remove_sources(["a.md"])
    assert await all_relationships(store) == set()


# From imports.


async def test_an_import_is_there_as_it_was_given(store: KnowledgeStore, reopen: Reopen) -> None:
    entities = [
        entity("Acme", kind="VENDOR", external_id="V-1", aliases=("ACM",), attributes={"tier": "gold"}),
        entity("Bolt", kind="PRODUCT", external_id="P-7"),
    ]
    made = related("v-1", "MAKES", "bolt", 0.8, attributes={"since": 2020})
    assert await store.import_graph("vendors.csv", entities, [made]) == (2, 1)
    store = await reopen()
    [acme] = await store.find_by_keys([name_key("v-1")])
    assert (acme.id, acme.type, acme.name, acme.aliases) == (1, "VENDOR", "Acme", ("ACM",))
    assert (acme.external_id, acme.attributes, acme.mentions) == ("V-1", {"tier": "gold"}, 0)
    one = (await store.relationships([1]))[1]
    assert (one.source_id, one.target_id, one.type, one.confidence) == (1, 2, "MAKES", 0.8)
    assert (one.attributes, one.updated) == ({"since": 2020}, START)
    assert await store.graph_origins() == ["vendors.csv"]


async def test_an_import_again_replaces_what_it_said_and_keeps_ids(
    store: KnowledgeStore, clock: Clock
) -> None:
    before = [
        entity("Acme", external_id="1"),
        entity("Bolt"),
        entity("Gone", external_id="3"),
        entity("Same", aliases=("S",)),
    ]
    links = [related("1", "OWNS", "Bolt"), related("1", "OWNS", "3"), related("Same", "OWNS", "Bolt")]
    await store.import_graph("o", before, links)
    clock.time += 10
    after = [
        entity("Acme Renamed", external_id="1"),
        entity("bolt", confidence=0.5),
        entity("New"),
        entity("Same", aliases=("S",)),
    ]
    links = [related("1", "OWNS", "Bolt", 0.4), related("New", "OWNS", "1"), related("s", "OWNS", "Bolt")]
    assert await store.import_graph("o", after, links) == (4, 3)
    found = await all_entities(store)
    assert {name: one.id for name, one in found.items()} == {
        "Acme Renamed": 1,
        "bolt": 2,
        "Same": 4,
        "New": 5,
    }
    assert found["bolt"].confidence == 0.5
    assert {name: one.updated - START for name, one in found.items()} == {
        "Acme Renamed": 10,
        "bolt": 10,
        "Same": 0,
        "New": 10,
    }
    assert await named(store, "acme", "gone") == []
    edges = [tuple(edge) for edge in await store.edges([1, 2, 3, 4, 5])]
    assert edges == [(1, 1, 2, "OWNS", 0.4), (3, 4, 2, "OWNS", 0.9), (4, 5, 1, "OWNS", 0.9)]
    assert (await store.relationships([3]))[3].updated == START


async def test_an_import_is_forgotten_with_what_only_it_said(store: KnowledgeStore) -> None:
    await store.import_graph("a", [entity("Acme"), entity("Bolt")], [related("Acme", "OWNS", "Bolt")])
    await store.import_graph("b", [entity("ACME")], [related("acme", "OWNS", "Bolt", 0.3)])
    assert await store.graph_origins() == ["a", "b"]
    assert await store.delete_graph("a") == 2
    assert await store.graph_origins() == ["b"]
    [left] = (await all_entities(store)).values()
    assert (left.id, left.name) == (1, "ACME")
    assert await all_relationships(store) == set()
    assert await store.delete_graph("b") == 1
    assert await all_entities(store) == {}
    assert await store.graph_origins() == []


async def test_what_an_import_and_a_text_say_outlives_either(store: KnowledgeStore) -> None:
    both = [entity("Acme", 0), entity("Bolt", 0)]
    await store.replace_document(
        document("a.md", "x", entities=both, relationships=[related("Acme", "OWNS", "Bolt", 0.6)])
    )
    await store.import_graph("o", [entity("Acme"), entity("Bolt")], [related("Acme", "OWNS", "Bolt", 0.8)])
    assert [edge.confidence for edge in await store.edges([1])] == [0.8]
    await store.delete_graph("o")
    assert [edge.confidence for edge in await store.edges([1])] == [0.6]
    await store.import_graph("o", [entity("Acme"), entity("Bolt")], [related("Acme", "OWNS", "Bolt", 0.8)])
    await store.remove_sources(["a.md"])
    assert [tuple(edge) for edge in await store.edges([1])] == [(1, 1, 2, "OWNS", 0.8)]
    assert (await store.entities([1]))[1].mentions == 0


async def test_a_text_speaks_of_an_imported_entity_of_a_kindred_type(store: KnowledgeStore) -> None:
    imported = entity("Acme Corporation", kind="VENDOR", external_id="v", aliases=("Acme",))
    await store.import_graph("o", [imported, entity("Mercury", kind="PLANET")], [])
    await store.replace_document(about("a.md", "ACME", "Mercury"))
    found = await all_entities(store)
    assert {name: (one.id, one.type, one.mentions) for name, one in found.items() if one.id != 2} == {
        "Acme Corporation": (1, "VENDOR", 1),
        "Mercury": (3, "ORG", 1),
    }
    await store.delete_graph("o")
    found = await all_entities(store)
    assert {name: (one.id, one.type) for name, one in found.items()} == {
        "ACME": (1, "ORG"),
        "Mercury": (3, "ORG"),
    }


async def test_what_imports_say_is_known_without_what_texts_add(store: KnowledgeStore) -> None:
    assert await store.imported_entities() == []
    acme = entity("Acme Corp", kind="VENDOR", external_id="v", aliases=("ACM",), attributes={"tier": 1})
    await store.import_graph("p", [entity("Bolt", confidence=0.6), acme], [])
    await store.import_graph("o", [entity("ACME CORP", kind="VENDOR", aliases=("Acme",))], [])
    said = document("a.md", "x", entities=[entity("acm", 0, aliases=("A.C.M.",)), entity("Dana", 0)])
    await store.replace_document(said)
    assert "A.C.M." in (await all_entities(store))["ACME CORP"].aliases
    told = await store.imported_entities()
    assert [(one.type, one.name, one.aliases, one.confidence) for one in told] == [
        ("ORG", "Bolt", (), 0.6),
        ("VENDOR", "ACME CORP", ("Acme", "ACM"), 0.9),
    ]
    await store.delete_graph("o")
    assert [one.name for one in await store.imported_entities()] == ["Bolt", "Acme Corp"]


async def test_what_was_imported_is_told_without_what_texts_say(store: KnowledgeStore) -> None:
    assert await store.imported_graph() == ([], [])
    spoken_of = [entity("ACME", 0, confidence=0.97, aliases=("Acme Inc",)), entity("Dana", 0, kind="PERSON")]
    said = [related("ACME", "OWNS", "Dana", 0.99), related("ACME", "USES", "Dana")]
    await store.replace_document(document("a.md", "x", entities=spoken_of, relationships=said))
    acme = entity("Acme", kind="VENDOR", external_id="v", attributes={"tier": 1}, confidence=0.8)
    await store.import_graph(
        "o", [acme, entity("Bolt")], [related("v", "OWNS", "Dana", 0.7, attributes={"a": 1})]
    )
    await store.import_graph("p", [entity("ACME", kind="VENDOR", aliases=("ACM",))], [])
    entities, [owns] = await store.imported_graph()
    told = [(one.id, one.type, one.name, one.aliases, one.confidence, one.imported) for one in entities]
    assert told == [
        (1, "VENDOR", "Acme", ("ACM",), 0.9, True),
        (2, "PERSON", "Dana", (), 0.9, False),
        (3, "ORG", "Bolt", (), 0.9, True),
    ]
    assert (entities[0].attributes, entities[0].external_id) == ({"tier": 1}, "v")
    assert (owns.source_id, owns.target_id, owns.type) == (1, 2, "OWNS")
    assert (owns.confidence, owns.attributes) == (0.7, {"a": 1})


async def test_an_import_speaks_of_whom_texts_spoke_of_before(store: KnowledgeStore) -> None:
    await store.replace_document(about("a.md", "Acme"))
    await store.import_graph(
        "o", [entity("Acme Corp", kind="SUPPLIER", external_id="v", aliases=("ACME",))], []
    )
    [found] = (await all_entities(store)).values()
    assert (found.id, found.type, found.name, found.aliases) == (1, "SUPPLIER", "Acme Corp", ("ACME",))
    assert found.mentions == 1


@pytest.mark.parametrize("text", ["Acme", "ACME Inc", "Acme, Incorporated"])
@pytest.mark.parametrize("imported_first", [True, False])
async def test_a_text_and_an_import_speak_of_one_company_with_and_without_its_legal_form(
    store: KnowledgeStore, text: str, *, imported_first: bool
) -> None:
    async def speak() -> None:
        await store.replace_document(about("a.md", text))

    if not imported_first:
        await speak()
    await store.import_graph("o", [entity("Acme Inc.", kind="VENDOR", external_id="v")], [])
    if imported_first:
        await speak()
    [found] = (await all_entities(store)).values()
    assert (found.id, found.name, found.mentions, found.imported) == (1, "Acme Inc.", 1, True)
    await store.delete_graph("o")
    [found] = (await all_entities(store)).values()
    assert (found.name, found.mentions, found.imported, found.external_id) == (text, 1, False, "")
    await store.import_graph("o", [entity("Acme Inc.", kind="VENDOR", external_id="v")], [])
    await store.remove_sources(["a.md"])
    [found] = (await all_entities(store)).values()
    assert (found.name, found.aliases, found.mentions) == ("Acme Inc.", (), 0)


@pytest.mark.parametrize("imported_first", [True, False])
@pytest.mark.parametrize("separately", [True, False])
async def test_a_short_name_of_two_imported_companies_is_neither_and_all_are_listed(
    store: KnowledgeStore, *, imported_first: bool, separately: bool
) -> None:
    if not imported_first:
        await store.replace_document(about("a.md", "Acme", "Bolt Ltd"))
    companies = [entity("Acme Inc.", kind="VENDOR"), entity("Acme GmbH", kind="SUPPLIER")]
    imports = [companies[:1], companies[1:]] if separately and imported_first else [companies]
    for number, some in enumerate(imports):
        await store.import_graph(f"{number}", some, [])
    await store.import_graph("other", [entity("Bolt AG", kind="VENDOR")], [])
    if imported_first:
        await store.replace_document(about("a.md", "Acme", "Bolt Ltd"))
    mentions = {name: one.mentions for name, one in (await all_entities(store)).items()}
    assert mentions == {"Acme Inc.": 0, "Acme GmbH": 0, "Bolt AG": 0, "Acme": 1, "Bolt Ltd": 1}
    vendors = EntityLookup(store, store.revision)
    with pytest.raises(VendorAmbiguous) as ambiguous:
        await vendors.find_vendor("acme")
    assert {match.name for match in ambiguous.value.matches} == {"Acme", "Acme Inc.", "Acme GmbH"}
    assert (await vendors.find_vendor("Bolt Ltd.")).name == "Bolt Ltd"


async def test_two_imported_companies_are_two_also_where_only_the_legal_form_differs(
    store: KnowledgeStore,
) -> None:
    await store.import_graph("a.csv", [entity("Acme GmbH", kind="VENDOR")], [])
    await store.import_graph("b.csv", [entity("Acme", kind="VENDOR")], [])
    assert set(await all_entities(store)) == {"Acme GmbH", "Acme"}


async def test_an_alias_says_more_of_whom_texts_meant_than_a_name_without_its_form(
    store: KnowledgeStore,
) -> None:
    await store.replace_document(document("a.md", "of Acme", entities=[entity("Acme", 0)]))
    await store.replace_document(document("b.md", "of ACM", entities=[entity("ACM", 0)]))
    await store.import_graph("v.csv", [entity("Acme GmbH", kind="VENDOR", aliases=("ACM",))], [])
    assert {one.name: one.id for one in (await all_entities(store)).values()} == {"Acme": 1, "Acme GmbH": 2}


async def test_namesakes_with_ids_of_their_own_are_two(store: KnowledgeStore) -> None:
    two = [entity("Acme", kind="VENDOR", external_id="1"), entity("ACME", kind="VENDOR", external_id="2")]
    assert await store.import_graph("o", two, [related("1", "OWNS", "2")]) == (2, 1)
    assert await named(store, "acme") == [1, 2]
    assert await store.import_graph("o", two, [related("1", "OWNS", "2")]) == (2, 1)
    assert await named(store, "acme") == [1, 2]


async def test_a_text_that_may_mean_two_means_neither(store: KnowledgeStore) -> None:
    two = [entity("Acme", external_id="1"), entity("ACME", external_id="2")]
    short = [entity("Bolt Works", aliases=("Bolt",)), entity("Bolt Foods", aliases=("Bolt",))]
    await store.import_graph("o", [*two, *short], [])
    for file in ("a.md", "b.md"):
        said = related("Acme", "OWNS", "Bolt")
        spoken_of = [entity("Acme", 0), entity("Bolt", 0)]
        await store.replace_document(document(file, file, entities=spoken_of, relationships=[said]))
    found = await store.entities(range(1, 9))
    assert [(one.name, one.mentions) for _, one in sorted(found.items())] == [
        ("Acme", 0),
        ("ACME", 0),
        ("Bolt Works", 0),
        ("Bolt Foods", 0),
        ("Acme", 2),
        ("Bolt", 2),
    ]
    assert await all_relationships(store) == {(5, 6, "OWNS")}


async def test_who_is_named_without_an_id_keeps_the_one_that_another_import_gave(
    store: KnowledgeStore,
) -> None:
    await store.import_graph("a", [entity("Acme", kind="VENDOR", external_id="1")], [])
    await store.import_graph(
        "b", [entity("Acme", kind="VENDOR"), entity("Acme", kind="VENDOR", external_id="2")], []
    )
    assert (await named(store, "1"), await named(store, "2"), await named(store, "acme")) == (
        [1],
        [2],
        [1, 2],
    )


@pytest.mark.parametrize(
    ("end", "says"),
    [("Nobody", "no entity is called 'Nobody'"), ("Twin", "'Twin' fits 2 entities")],
)
async def test_an_import_with_an_uncertain_end_is_refused_and_changes_nothing(
    store: KnowledgeStore, end: str, says: str
) -> None:
    await store.import_graph("o", [entity("Acme")], [])
    revision = await store.revision()
    twins = [entity("Acme"), entity("Twin", external_id="1"), entity("TWIN", external_id="2")]
    links = [related("Acme", "OWNS", "1"), related("Acme", "OWNS", end)]
    with pytest.raises(InvalidGraph) as refused:
        await store.import_graph("o", twins, links)
    assert refused.value.message.startswith(f"Relationship 2 ('Acme' OWNS {end!r}): {says}. ")
    assert refused.value.hint
    assert await store.revision() == revision
    assert list(await all_entities(store)) == ["Acme"]


async def test_all_uncertain_ends_are_told_at_once(store: KnowledgeStore) -> None:
    twins = [entity("Twin", external_id="1"), entity("TWIN", external_id="2")]
    links = [related("Nobody", "OWNS", "Twin"), related("1", "OWNS", "2"), related("2", "OWNS", "Else")]
    with pytest.raises(UnresolvedEndpoints) as refused:
        await store.import_graph("o", twins, links)
    assert refused.value.message == (
        "The graph has 3 ends of relationships that are not certain: "
        "relationship 1 ('Nobody' OWNS 'Twin'): no entity is called 'Nobody', "
        "relationship 1 ('Nobody' OWNS 'Twin'): 'Twin' fits 2 entities, "
        "relationship 3 ('2' OWNS 'Else'): no entity is called 'Else'. "
        "Add it to the entities that are imported, or give the name, alias or id of one that is known. "
        "Give the external id of the one that is meant, or a name that no other has. Nothing was imported."
    )
    assert await store.graph_origins() == []


async def test_an_end_means_the_imports_own_before_others(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "x", entities=[entity("Mercury", 0, kind="PRODUCT")]))
    await store.import_graph("o", [entity("Mercury"), entity("Acme")], [related("acme", "OWNS", "mercury")])
    assert await all_relationships(store) == {(3, 2, "OWNS")}
    await store.import_graph("p", [entity("Owner")], [related("Owner", "OWNS", "acme")])
    assert (4, 3, "OWNS") in await all_relationships(store)


async def test_updated_changes_only_when_something_does(store: KnowledgeStore, clock: Clock) -> None:
    both = [entity("Acme", 0), entity("Bolt", 0)]
    given = document("a.md", "x", entities=both, relationships=[related("Acme", "OWNS", "Bolt")])
    await store.replace_document(given)
    clock.time += 5
    await store.replace_document(given)
    assert {one.updated for one in (await store.entities([1, 2])).values()} == {START}
    assert (await store.relationships([1]))[1].updated == START
    await store.replace_document(about("b.md", "Acme"))
    found = await store.entities([1, 2])
    assert (found[1].updated, found[2].updated) == (START + 5, START)


async def test_edges_are_those_of_both_directions_once(store: KnowledgeStore) -> None:
    everybody = [entity(name) for name in ("A", "B", "C")]
    links = [related("A", "R", "B"), related("B", "R", "A"), related("B", "Q", "C"), related("C", "R", "C")]
    await store.import_graph("o", everybody, links)
    assert [edge.id for edge in await store.edges([1])] == [1, 2]
    assert [edge.id for edge in await store.edges([1, 2, 3])] == [1, 2, 3, 4]
    assert await store.edges([]) == []


async def test_what_is_around_an_entity_is_told_with_when_it_changed(
    store: KnowledgeStore, clock: Clock
) -> None:
    everybody = [entity("Hub"), entity("Ann", kind="PERSON", confidence=0.5), entity("Bolt"), entity("Far")]
    links = [related("Hub", "R", "Ann"), related("Bolt", "R", "Hub", 0.3), related("Hub", "SELF", "Hub")]
    await store.import_graph("o", everybody, [*links, related("Bolt", "R", "Far")])
    around = await store.neighbourhood(1)
    assert [tuple(one) for one in around.neighbours] == [
        (2, "PERSON", "Ann", 0.5, 0),
        (3, "ORG", "Bolt", 0.9, 0),
    ]
    assert (around.edges, around.updated) == (await store.edges([1]), START)
    clock.time += 5
    await store.import_graph("p", [], [related("Hub", "R", "Ann", 0.95)])
    assert (await store.neighbourhood(1)).updated == START + 5
    assert tuple(await store.neighbourhood(99)) == ([], [], 0.0)


@pytest.mark.parametrize("name", ["Ca\u0390n", "Straße 5", "Sisyphos Σίσυφος", "İstanbul Gaz", "Ünye"])
async def test_a_name_is_found_by_its_capitals_in_any_script(store: KnowledgeStore, name: str) -> None:
    await store.import_graph("o", [entity(name)], [])
    assert await named(store, name.upper()) == await named(store, name.lower()) == [1]


async def test_what_is_imported_again_as_it_was_changes_nothing(store: KnowledgeStore) -> None:
    told = ([entity("Acme"), entity("Bolt", external_id="b")], [related("Acme", "OWNS", "Bolt")])
    assert await store.import_graph("g", *told) == (2, 1)
    revision = await store.revision()
    assert await store.import_graph("g", *told) == (2, 1)
    assert await store.revision() == revision
    await store.import_graph("g", told[0], [])
    assert await store.revision() == revision + 1
