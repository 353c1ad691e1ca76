"""find_vendor_info knows a vendor by any of its names, and shows what is around it."""

import asyncio
from typing import Any

import pytest

from headgate.knowledge.data_model import (
    IngestedDocument,
    Mention,
    Neighbourhood,
    NewChunk,
    NewEntity,
    NewRelationship,
    SourceRecord,
)
from headgate.knowledge.errors import (
    InvalidKnowledgeArgument,
    TokenBudgetExceeded,
    VendorAmbiguous,
    VendorNotFound,
)
from headgate.knowledge.tools.response_modes import VENDOR_FIELDS, ResponseMode
from headgate.knowledge.tools.tool_router import error_content
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.tools.tool_harness import NOON, ToolHarness

MODES = [ResponseMode.IDS_ONLY, ResponseMode.METADATA, ResponseMode.PREVIEW, ResponseMode.FULL]
AROUND = {"execution_time_ms", "pagination"}


async def with_acme(products: int = 7) -> ToolHarness:
    """Acme is 1, its products are 2 and on, each surer than the one before."""
    desk = ToolHarness()
    acme = NewEntity(
        type="ORG", name="Acme Inc", aliases=("ACME Corporation", "The  Acme"), external_id="V-7"
    )
    others = [
        NewEntity(type="PRODUCT", name=f"Anvil {n}", confidence=(n + 1) / 1000, attributes={"n": n})
        for n in range(products)
    ]
    made = [
        NewRelationship(source="V-7", target=f"Anvil {n}", type="MAKES", confidence=(n + 1) / 1000)
        for n in range(products)
    ]
    await desk.know([acme, *others], made)
    return desk


@pytest.mark.parametrize(
    "name", ["Acme Inc", " acme   INC ", "acme corporation", "the acme", "V-7", "1", "id 1", "ID: 1"]
)
async def test_a_vendor_is_found_by_case_alias_and_id(name: str) -> None:
    answer = await (await with_acme()).ask("find_vendor_info", vendor_name=name)
    assert (answer["vendor_id"], answer["vendor_name"]) == (1, "Acme Inc")


async def test_an_id_may_come_as_the_number_that_matches_are_told_with() -> None:
    assert (await (await with_acme()).ask("find_vendor_info", vendor_name=1))["vendor_name"] == "Acme Inc"


async def test_the_id_that_the_refusal_names_is_certain_also_where_imports_number_vendors() -> None:
    desk = ToolHarness()
    await desk.know(
        [
            NewEntity(type="VENDOR", name="Delta Ltd", external_id="2"),
            NewEntity(type="SUPPLIER", name="Delta Ltd", external_id="1"),
        ],
        [],
    )
    for name in ("Delta Ltd", "1", "2"):
        with pytest.raises(VendorAmbiguous, match=r"such as 'id 1'\.$"):
            await desk.ask("find_vendor_info", vendor_name=name)
    assert (await desk.ask("find_vendor_info", vendor_name="id 1"))["vendor_id"] == 1
    assert (await desk.ask("find_vendor_info", vendor_name=2))["vendor_id"] == 2


@pytest.mark.parametrize("name", ["Acme, Inc.", "acme-inc", "Acme", "ACME Ltd.", "Acme S.A."])
async def test_punctuation_and_legal_form_do_not_matter_where_nothing_fits_better(name: str) -> None:
    assert (await (await with_acme()).ask("find_vendor_info", vendor_name=name))["vendor_id"] == 1


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        ("Gaz İthalat A.Ş.", "GAZ ITHALAT"),
        ("Vins S.A.S.", "vins"),
        ("Smith & Sons Ltd", "smith and sons"),
        ("Straße 5 GmbH & Co. KG", "STRASSE 5"),
        ("Société Vins S.à r.l.", "societe vins"),
    ],
)
async def test_a_legal_form_with_dots_and_an_ampersand_do_not_matter_either(known: str, asked: str) -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="VENDOR", name=known), NewEntity(type="VENDOR", name="Another")], [])
    assert (await desk.ask("find_vendor_info", vendor_name=asked))["vendor_name"] == known


async def test_a_name_without_its_accents_and_with_a_typo_is_suggested() -> None:
    desk = ToolHarness()
    await desk.know(
        [NewEntity(type="VENDOR", name="Σίσυφος Έργα"), NewEntity(type="VENDOR", name="Else")], []
    )
    with pytest.raises(VendorNotFound) as missing:
        await desk.ask("find_vendor_info", vendor_name="ΣΙΣΥΦΟΣ ΕΡΓ")
    assert missing.value.nearest == ["Σίσυφος Έργα"]


async def test_punctuation_matters_less_than_the_legal_form() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="ORG", name="Acme Inc"), NewEntity(type="ORG", name="Acme GmbH")], [])
    assert (await desk.ask("find_vendor_info", vendor_name="Acme, Inc."))["vendor_name"] == "Acme Inc"
    with pytest.raises(VendorAmbiguous):
        await desk.ask("find_vendor_info", vendor_name="Acme")


async def test_a_person_of_that_name_does_not_hide_the_vendor() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="PERSON", name="Acme"), NewEntity(type="ORG", name="Acme Inc")], [])
    assert (await desk.ask("find_vendor_info", vendor_name="Acme"))["vendor_id"] == 2


async def test_two_matches_are_listed_and_not_guessed() -> None:
    desk = ToolHarness()
    await desk.know(
        [
            NewEntity(type="ORG", name="Acme"),
            NewEntity(type="VENDOR", name="Acme Holding", aliases=("ACME",)),
            NewEntity(type="PERSON", name="Acme"),
        ],
        [],
    )
    with pytest.raises(VendorAmbiguous) as refused:
        await desk.ask("find_vendor_info", vendor_name="acme")
    told = error_content(refused.value)
    assert told["code"] == "VENDOR_AMBIGUOUS"
    assert told["matches"] == [
        {"vendor_id": 1, "vendor_name": "Acme", "vendor_type": "ORG"},
        {"vendor_id": 2, "vendor_name": "Acme Holding", "vendor_type": "VENDOR", "aliases": ["ACME"]},
    ]
    assert (await desk.ask("find_vendor_info", vendor_name="2"))["vendor_name"] == "Acme Holding"


async def test_matches_are_told_with_what_tells_them_apart() -> None:
    desk = ToolHarness()
    of_both = {"currency": "EUR", "branches": [1, 2], "note": "x" * 80}
    await desk.know(
        [
            NewEntity(type="ORG", name="Acme", external_id="V-1", attributes={**of_both, "city": "Bonn"}),
            NewEntity(type="ORG", name="Acme", external_id="V-2", attributes={**of_both, "city": "Metz"}),
        ],
        [],
    )
    with pytest.raises(VendorAmbiguous) as refused:
        await desk.ask("find_vendor_info", vendor_name="acme")
    assert "'Acme' (ORG, id 2, V-2, city: Metz, currency: EUR)" in refused.value.sentence
    assert error_content(refused.value)["matches"][0] == {
        "vendor_id": 1,
        "vendor_name": "Acme",
        "vendor_type": "ORG",
        "external_id": "V-1",
        "attributes": {"city": "Bonn", "currency": "EUR"},
    }


async def test_of_very_many_matches_some_are_listed() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="ORG", name="Acme", external_id=f"v{n}") for n in range(25)], [])
    with pytest.raises(
        VendorAmbiguous, match=r": 25 matches: .*'Acme' \(ORG, id 20, v19\) and 5 more\. "
    ) as refused:
        await desk.ask("find_vendor_info", vendor_name="acme")
    assert [match["vendor_id"] for match in error_content(refused.value)["matches"]] == list(range(1, 21))


async def test_two_who_look_for_nobody_at_once_read_the_names_once() -> None:
    desk = await with_acme()
    looked = [desk.ask("find_vendor_info", vendor_name=name) for name in ("Zzyzx", "Qwfpg")]
    ended = await asyncio.gather(*looked, return_exceptions=True)
    assert [type(one) for one in ended] == [VendorNotFound] * 2
    assert desk.store.asked.count("names") == 1


async def test_a_number_that_is_the_id_of_one_and_the_name_of_another_is_not_guessed() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="ORG", name="Acme"), NewEntity(type="ORG", name="1")], [])
    with pytest.raises(VendorAmbiguous):
        await desk.ask("find_vendor_info", vendor_name="1")
    assert (await desk.ask("find_vendor_info", vendor_name="id 1"))["vendor_name"] == "Acme"


async def test_nobody_of_that_name_is_told_word_for_word_with_the_nearest() -> None:
    desk = await with_acme()
    with pytest.raises(VendorNotFound) as refused:
        await desk.ask("find_vendor_info", vendor_name=" Acne Incc ")
    told = error_content(refused.value)
    assert told["error"] == (
        "Vendor 'Acne Incc' not found. Try using semantic_search first to find exact vendor names and IDs "
        "in the knowledge graph."
    )
    assert told["code"] == "VENDOR_NOT_FOUND"
    assert told["suggestions"] == ["Acme Inc"]
    assert told["action"] == "names like it: Acme Inc"
    assert refused.value.advice == "Names like it: Acme Inc."
    with pytest.raises(VendorNotFound) as nobody:
        await desk.ask("find_vendor_info", vendor_name="Zzyzx")
    assert error_content(nobody.value)["suggestions"] == []
    assert nobody.value.advice == ""


@pytest.mark.parametrize(
    ("asked", "suggested"), [("Acme Hostin", ["Acme Hosting Ltd"]), ("ASCC", ["ASC"]), ("0", [])]
)
async def test_a_few_letters_are_not_like_a_name_that_has_them(asked: str, suggested: list[str]) -> None:
    desk = ToolHarness()
    known = ("Acme Hosting Ltd", "ASC", "Newco20")
    await desk.know([NewEntity(type="ORG", name=name) for name in known], [])
    with pytest.raises(VendorNotFound) as refused:
        await desk.ask("find_vendor_info", vendor_name=asked)
    assert error_content(refused.value)["suggestions"] == suggested


async def test_a_name_that_ends_with_a_dot_ends_the_advice() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="ORG", name="Fernwall Networks Inc.")], [])
    with pytest.raises(VendorNotFound) as refused:
        await desk.ask("find_vendor_info", vendor_name="Fernwal Netwrks")
    assert refused.value.advice == "Names like it: Fernwall Networks Inc."


async def test_vendors_that_share_a_spelling_are_suggested_under_two() -> None:
    desk = ToolHarness()
    await desk.know(
        [
            NewEntity(type="ORG", name="Acme Corporate Works", aliases=("ACME",)),
            NewEntity(type="vendor", name="Acme"),
        ],
        [],
    )
    with pytest.raises(VendorNotFound) as refused:
        await desk.ask("find_vendor_info", vendor_name="Acmee")
    assert sorted(map(str.casefold, refused.value.nearest)) == ["acme", "acme corporate works"]


async def test_the_nearest_of_very_many_names_are_the_nearest_of_all() -> None:
    desk = ToolHarness()
    others = [NewEntity(type="ORG", name=f"Widget {number}") for number in range(1500)]
    await desk.know([*others, NewEntity(type="ORG", name="Quarry Stone")], [])
    with pytest.raises(VendorNotFound) as refused:
        await desk.ask("find_vendor_info", vendor_name="Quary Stone")
    assert refused.value.nearest[0] == "Quarry Stone"


async def test_who_cannot_afford_the_ids_is_told_a_page_that_he_can() -> None:
    desk = ToolHarness(210)
    names = [f"P{number}" for number in range(50)]
    await desk.know(
        [NewEntity(type="ORG", name="Acme"), *(NewEntity(type="PERSON", name=name) for name in names)],
        [NewRelationship(source="Acme", target=name, type="EMPLOYS") for name in names[:30]]
        + [NewRelationship(source=name, target="Acme", type="SERVES") for name in names],
    )
    with pytest.raises(TokenBudgetExceeded, match=r"; page_size 11 with ") as refused:
        await desk.ask("find_vendor_info", vendor_name="Acme", response_mode="full")
    assert "response_mode 'ids_only'" in refused.value.hint
    page = await desk.ask("find_vendor_info", vendor_name="Acme", response_mode="ids_only", page_size=11)
    assert len(page["entity_ids"]) == len(page["relationship_ids"]) == 11


async def test_the_names_that_are_suggested_are_those_of_now() -> None:
    desk = await with_acme()
    with pytest.raises(VendorNotFound):
        await desk.ask("find_vendor_info", vendor_name="Globes")
    await desk.store.import_graph("more", [NewEntity(type="COMPANY", name="Globex Ltd")], [])
    assert (await desk.ask("find_vendor_info", vendor_name="globex"))["vendor_name"] == "Globex Ltd"


async def test_a_product_is_no_vendor_and_its_name_leads_to_neighbours() -> None:
    with pytest.raises(VendorNotFound, match=r"^Vendor 'anvil 1' not found\. Try using ") as refused:
        await (await with_acme()).ask("find_vendor_info", vendor_name="anvil 1")
    assert error_content(refused.value)["action"] == "'Anvil 1' is a PRODUCT, not a vendor: use neighbours"


@pytest.mark.parametrize("mode", MODES)
async def test_each_mode_has_exactly_its_keys(mode: ResponseMode) -> None:
    answer = await (await with_acme()).ask("find_vendor_info", vendor_name="Acme Inc", response_mode=mode)
    # Seven entities are more than a preview shows, which is nothing to warn of.
    assert set(answer) == {*VENDOR_FIELDS[mode], *AROUND}


async def test_all_of_a_vendor_leads_to_the_first_passages_that_speak_of_it() -> None:
    desk = await with_acme()
    chunks = tuple(NewChunk(text=f"{n}", header="", tokens=1, digest=f"{n}") for n in range(14))
    acme = NewEntity(type="ORG", name="acme inc", mentions=tuple(Mention(n, 0, 1, 0.9) for n in range(1, 14)))
    await desk.store.replace_document(
        IngestedDocument(source=SourceRecord(file="a.md"), chunks=chunks, entities=(acme,))
    )
    answer = await desk.ask("find_vendor_info", vendor_name="Acme Inc", response_mode="full")
    assert answer["mentioned_in"] == list(range(2, 12))
    first = await desk.ask("get_chunk", chunk_id=answer["mentioned_in"][0])
    assert first["chunk_text"] == "1"


async def test_ids_come_with_the_surest_first() -> None:
    answer = await (await with_acme()).ask(
        "find_vendor_info", vendor_name="Acme Inc", response_mode="ids_only"
    )
    assert answer["entity_ids"] == [8, 7, 6, 5, 4, 3, 2]
    assert answer["relationship_ids"] == [7, 6, 5, 4, 3, 2, 1]


async def test_metadata_counts_what_is_around() -> None:
    answer = await (await with_acme()).ask("find_vendor_info", vendor_name="Acme Inc")
    assert answer["statistics"] == {
        "entity_count": 7,
        "relationship_count": 7,
        "entity_type_distribution": {"PRODUCT": 7},
        "relationship_type_distribution": {"MAKES": 7},
    }
    assert answer["top_entities"][0]["name"] == "Anvil 6"
    assert answer["last_updated"] == "2026-11-16T12:00:00Z"


async def test_a_preview_shows_five_of_each_and_the_cursor_the_others() -> None:
    desk = await with_acme()
    first, second = await desk.pages("find_vendor_info", vendor_name="Acme Inc", response_mode="preview")
    assert [len(first["entities"]), len(first["relationships"])] == [5, 5]
    assert [len(second["entities"]), len(second["relationships"])] == [2, 2]
    assert first["relationships"][0] == {
        "relationship_id": 7,
        "relationship_type": "MAKES",
        "source_id": 1,
        "source_name": "Acme Inc",
        "target_id": 8,
        "target_name": "Anvil 6",
        "confidence": 0.007,
    }


async def test_all_is_cut_with_a_warning_and_the_rest_is_reached_by_the_cursor() -> None:
    desk = await with_acme(520)
    first, *rest = await desk.pages("find_vendor_info", vendor_name="Acme Inc", response_mode="full")
    assert [len(first["entities"]), len(first["relationships"])] == [100, 500]
    assert first["warnings"][0]["code"] == "TRUNCATED"
    assert first["warnings"][0]["message"] == (
        "This answer has 100 of 520 entities and 500 of 520 relationships"
    )
    assert first["entities"][0]["attributes"] == {"n": 519}
    pages = [first, *rest]
    assert len({one["entity_id"] for page in pages for one in page["entities"]}) == 520
    assert sum(len(page["relationships"]) for page in pages) == 520
    assert "warnings" not in pages[-1]


@pytest.mark.parametrize("mode", MODES)
async def test_pages_side_by_side_hold_everything_once_in_every_mode(mode: ResponseMode) -> None:
    desk = await with_acme(7)
    await desk.store.import_graph(
        "more", [], [NewRelationship(source="V-7", target=f"Anvil {n}", type="SELLS") for n in range(5)]
    )
    pages = await desk.pages("find_vendor_info", vendor_name="Acme Inc", response_mode=mode, page_size=3)
    entities, relationships = _listed(mode, pages)
    assert sorted(entities) == [2, 3, 4, 5, 6, 7, 8]
    if mode is not ResponseMode.METADATA:
        assert sorted(relationships) == list(range(1, 13))
        assert [page["pagination"]["total_available"] for page in pages] == [19] * 4
    assert pages[0]["pagination"]["page_size"] == 3
    assert not any("warnings" in page for page in pages)


def _listed(mode: ResponseMode, pages: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    if mode is ResponseMode.IDS_ONLY:
        return (
            [id for page in pages for id in page["entity_ids"]],
            [id for page in pages for id in page["relationship_ids"]],
        )
    key = "top_entities" if mode is ResponseMode.METADATA else "entities"
    return (
        [one["entity_id"] for page in pages for one in page[key]],
        [one["relationship_id"] for page in pages for one in page.get("relationships", ())],
    )


async def test_pages_stay_as_they_were_while_the_graph_changes() -> None:
    desk = await with_acme()
    await desk.store.import_graph(
        "soon gone",
        [NewEntity(type="PRODUCT", name="Rocket", confidence=0.005)],
        [NewRelationship(source="V-7", target="Rocket", type="MAKES", confidence=0.005)],
    )
    ask: dict[str, Any] = {"vendor_name": "Acme Inc", "response_mode": "ids_only", "page_size": 3}
    first = await desk.ask("find_vendor_info", **ask)
    await desk.store.delete_graph("soon gone")
    await desk.store.import_graph(
        "new",
        [NewEntity(type="PRODUCT", name="Glue")],
        [NewRelationship(source="V-7", target="Glue", type="MAKES")],
    )
    second = await desk.ask("find_vendor_info", **ask, cursor=first["pagination"]["cursor"])
    third = await desk.ask("find_vendor_info", **ask, cursor=second["pagination"]["cursor"])
    entities, relationships = _listed(ResponseMode.IDS_ONLY, [first, second, third])
    assert entities == [8, 7, 6, 5, 4, 3, 2]
    assert relationships == [7, 6, 5, 4, 3, 2, 1]
    assert not third["pagination"]["has_more"]


async def test_relationships_can_be_left_out_but_are_counted() -> None:
    desk = await with_acme()
    for mode, key in ((ResponseMode.IDS_ONLY, "relationship_ids"), (ResponseMode.FULL, "relationships")):
        answer = await desk.ask(
            "find_vendor_info", vendor_name="Acme Inc", response_mode=mode, include_relationships=False
        )
        assert answer[key] == []
        assert answer["pagination"]["total_available"] == 7
    assert answer["statistics"]["relationship_count"] == 7


@pytest.mark.parametrize("mode", MODES)
async def test_fields_are_exactly_those_that_were_named(mode: ResponseMode) -> None:
    desk = await with_acme()
    for field in VENDOR_FIELDS[mode]:
        answer = await desk.ask(
            "find_vendor_info", vendor_name="Acme Inc", response_mode=mode, fields=[field], page_size=50
        )
        assert set(answer) == {field, *AROUND}


@pytest.mark.parametrize(
    ("mode", "fields", "pages"),
    [
        ("ids_only", ["entity_ids"], 3),
        ("ids_only", ["relationship_ids"], 3),
        ("metadata", ["top_entities"], 3),
        ("metadata", ["statistics"], 1),
        ("preview", ["entities", "statistics"], 3),
        ("full", ["vendor_name", "aliases"], 1),
    ],
)
async def test_pages_are_of_what_the_fields_show(mode: str, fields: list[str], pages: int) -> None:
    desk = await with_acme()
    read = await desk.pages(
        "find_vendor_info", vendor_name="Acme Inc", response_mode=mode, fields=fields, page_size=3
    )
    assert len(read) == pages
    listed = [one for page in read for name in fields for one in page[name] if isinstance(page[name], list)]
    shown = {"entity_ids", "relationship_ids", "top_entities", "entities"} & set(fields)
    if shown:
        assert len(listed) == read[0]["pagination"]["total_available"] == 7
    else:
        assert read[0]["pagination"]["total_available"] == 0


async def test_a_cut_list_that_no_field_shows_is_not_told_of() -> None:
    desk = await with_acme(products=120)
    answer = await desk.ask(
        "find_vendor_info", vendor_name="Acme Inc", response_mode="full", fields=["entities"]
    )
    assert answer["warnings"][0]["message"] == "This answer has 100 of 120 entities"


async def test_a_field_of_another_mode_is_refused_with_the_modes_that_have_it() -> None:
    with pytest.raises(
        InvalidKnowledgeArgument, match=r"Invalid fields for response_mode 'ids_only': \['entities'\]"
    ) as refused:
        await ToolHarness().ask(
            "find_vendor_info", vendor_name="x", response_mode="ids_only", fields=["entities"]
        )
    assert refused.value.hint == "take response_mode preview or full for entities"
    with pytest.raises(InvalidKnowledgeArgument) as refused:
        await ToolHarness().ask("find_vendor_info", vendor_name="x", fields=["hotline"])
    assert refused.value.hint == ("leave out fields to get all of them, or name only those that are allowed")


@pytest.mark.parametrize("name", ["x" * 201, "  ", "", None, 0, -1, 2**63, True, 1.5, ["Acme"], "a\0b"])
async def test_a_name_that_cannot_be_one_is_refused(name: object) -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="vendor_name"):
        await ToolHarness().ask("find_vendor_info", vendor_name=name)


async def test_200_characters_are_a_name() -> None:
    with pytest.raises(VendorNotFound):
        await ToolHarness().ask("find_vendor_info", vendor_name=f" {'x' * 200} ")


async def test_a_cursor_belongs_to_its_vendor() -> None:
    desk = await with_acme()
    first = await desk.ask("find_vendor_info", vendor_name="Acme Inc", page_size=2)
    with pytest.raises(InvalidKnowledgeArgument, match="cursor belongs to another vendor_name"):
        await desk.ask("find_vendor_info", vendor_name="Globex", cursor=first["pagination"]["cursor"])
    desk.restarted()
    again = await desk.ask("find_vendor_info", vendor_name="ACME inc", cursor=first["pagination"]["cursor"])
    assert again["top_entities"][0]["entity_id"] == 6


async def test_what_changed_last_of_the_vendor_or_of_those_around_it_is_told() -> None:
    class Older(MemoryKnowledgeStore):
        async def neighbourhood(self, entity_id: int) -> Neighbourhood:
            neighbours, edges, _ = await super().neighbourhood(entity_id)
            return Neighbourhood(neighbours, edges, updated=1.0)

    desk = ToolHarness(store=Older(lambda: NOON))
    await desk.know([NewEntity(type="ORG", name="Acme")], [])
    answer = await desk.ask("find_vendor_info", vendor_name="Acme")
    assert answer["last_updated"] == "2026-11-16T12:00:00Z"
