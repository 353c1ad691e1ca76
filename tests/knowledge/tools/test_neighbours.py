"""neighbours walks one hop or two, along what is sure enough."""

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.knowledge.data_model import Edge, NewEntity, NewRelationship
from headgate.knowledge.errors import EntityAmbiguous, EntityNotFound, InvalidKnowledgeArgument
from headgate.knowledge.graph.traversal import (
    MOST_EDGES,
    MOST_EXPANDED,
    MOST_REACHED,
    TraversalOptions,
    traverse,
)
from headgate.knowledge.tools.tool_router import error_content
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.tools.tool_harness import ToolHarness

ACME, BOB, WIDGET, PARIS, RUMOUR, EVE = 1, 2, 3, 4, 5, 6


async def town() -> ToolHarness:
    desk = ToolHarness()
    await desk.know(
        [
            NewEntity(type="ORG", name="Acme"),
            NewEntity(type="PERSON", name="Bob"),
            NewEntity(type="PRODUCT", name="Widget"),
            NewEntity(type="PLACE", name="Paris"),
            NewEntity(type="PLACE", name="Rumour"),
            NewEntity(type="PERSON", name="Eve"),
        ],
        [
            NewRelationship(source="Bob", target="Acme", type="WORKS_FOR", confidence=0.9),
            NewRelationship(source="Acme", target="Widget", type="MAKES", confidence=0.8),
            NewRelationship(source="Bob", target="Paris", type="LIVES_IN", confidence=0.9),
            NewRelationship(source="Widget", target="Paris", type="SOLD_IN", confidence=1.0),
            NewRelationship(source="Acme", target="Rumour", type="LOCATED_IN", confidence=0.3),
            NewRelationship(source="Bob", target="Widget", type="USES", confidence=0.95),
            NewRelationship(source="Eve", target="Paris", type="LIVES_IN"),
        ],
    )
    return desk


def walked(answer: dict[str, Any]) -> list[tuple[int, int, float]]:
    return [(one["entity_id"], one["hop"], one["confidence"]) for one in answer["entities"]]


def related(answer: dict[str, Any]) -> list[int]:
    return [one["relationship_id"] for one in answer["relationships"]]


async def test_one_hop_tells_those_next_to_it_the_surest_first() -> None:
    answer = await (await town()).ask("neighbours", entity="acme")
    assert walked(answer) == [(BOB, 1, 0.9), (WIDGET, 1, 0.8)]
    assert related(answer) == [1, 2]
    assert answer["relationships"][0]["source_name"] == "Bob"
    assert (answer["entity_id"], answer["name"], answer["total_found"]) == (ACME, "Acme", 2)


async def test_two_hops_multiply_along_the_best_way() -> None:
    answer = await (await town()).ask("neighbours", entity="Acme", hops=2)
    assert walked(answer) == [(BOB, 1, 0.9), (WIDGET, 1, 0.8), (PARIS, 2, 0.81)]
    assert answer["entities"][2]["via"] == {"entity_id": BOB, "name": "Bob"}
    assert answer["entities"][0]["via"] is None
    # Also those between two that are both one hop away.
    assert sorted(related(answer)) == [1, 2, 3, 4, 6]


async def test_what_is_less_sure_is_not_walked_unless_asked_for() -> None:
    desk = await town()
    low = await desk.ask("neighbours", entity="Acme", min_confidence=0)
    assert [one["name"] for one in low["entities"]] == ["Bob", "Widget", "Rumour"]
    high = await desk.ask("neighbours", entity="Acme", min_confidence="0.85")
    assert [one["name"] for one in high["entities"]] == ["Bob"]


async def test_what_was_left_out_as_unsure_is_told_once() -> None:
    desk = await town()
    answer = await desk.ask("neighbours", entity="Acme", hops=2, page_size=2)
    assert answer["warnings"] == [
        {
            "level": "info",
            "code": "BELOW_CONFIDENCE",
            "message": "1 relationship was left out: the confidence is below 0.7",
            "suggestion": "lower min_confidence to walk along them too",
        }
    ]
    cursor = answer["pagination"]["cursor"]
    following = await desk.ask("neighbours", entity="Acme", hops=2, page_size=2, cursor=cursor)
    assert "warnings" not in following
    assert "warnings" not in await desk.ask("neighbours", entity="Acme", min_confidence=0.3)
    assert "warnings" not in await desk.ask("neighbours", entity="Acme", relationship_types="MAKES")


async def test_types_choose_whom_to_tell_of_and_which_way_to_go() -> None:
    desk = await town()
    places = await desk.ask("neighbours", entity="Acme", hops=2, entity_types="place")
    assert walked(places) == [(PARIS, 2, 0.81)]
    made = await desk.ask("neighbours", entity="Acme", hops=2, relationship_types=["makes", "SOLD_IN"])
    assert walked(made) == [(WIDGET, 1, 0.8), (PARIS, 2, 0.8)]


async def test_pages_hold_every_entity_and_relationship_once() -> None:
    desk = await town()
    pages = await desk.pages("neighbours", entity="Paris", hops=2, min_confidence=0, page_size=1)
    assert len(pages) == 4
    assert sorted(one for page in pages for one, _, _ in walked(page)) == [ACME, BOB, WIDGET, EVE]
    assert sorted(id for page in pages for id in related(page)) == [1, 2, 3, 4, 6, 7]


async def test_a_cursor_belongs_to_its_walk() -> None:
    desk = await town()
    cursor = (await desk.ask("neighbours", entity="Acme", page_size=1))["pagination"]["cursor"]
    with pytest.raises(InvalidKnowledgeArgument, match="cursor belongs to another number of hops"):
        await desk.ask("neighbours", entity="Acme", hops=2, cursor=cursor)
    with pytest.raises(InvalidKnowledgeArgument, match="cursor belongs to another entity"):
        await desk.ask("neighbours", entity="Bob", cursor=cursor)


async def test_fields_choose_and_relationships_are_one_of_them() -> None:
    desk = await town()
    answer = await desk.ask("neighbours", entity="id 1", fields=["name", "hop"])
    assert answer["entities"] == [{"name": "Bob", "hop": 1}, {"name": "Widget", "hop": 1}]
    assert "relationships" not in answer
    with pytest.raises(InvalidKnowledgeArgument, match=r"Invalid fields for neighbours: \['rank'\]"):
        await desk.ask("neighbours", entity="Acme", fields=["rank"])


async def test_a_vendor_is_also_known_without_its_legal_form() -> None:
    assert (await (await town()).ask("neighbours", entity="Acme, Inc."))["entity_id"] == ACME


async def test_several_of_one_name_are_listed() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="PERSON", name="Paris"), NewEntity(type="PLACE", name="Paris")], [])
    with pytest.raises(
        EntityAmbiguous, match=r"'Paris' \(PERSON, id 1\), 'Paris' \(PLACE, id 2\)"
    ) as refused:
        await desk.ask("neighbours", entity="Paris")
    told = error_content(refused.value)
    assert told["code"] == "VENDOR_AMBIGUOUS"
    assert told["matches"] == [
        {"entity_id": 1, "name": "Paris", "entity_type": "PERSON"},
        {"entity_id": 2, "name": "Paris", "entity_type": "PLACE"},
    ]
    assert (await desk.ask("neighbours", entity="2"))["entity_id"] == 2
    with pytest.raises(EntityNotFound, match="Entity 'London' not found"):
        await desk.ask("neighbours", entity="London")


async def test_how_an_accent_is_coded_does_not_matter() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="PERSON", name="Jos\u00e9")], [])
    assert (await desk.ask("neighbours", entity="JOSE\u0301"))["name"] == "Jos\u00e9"


async def test_anybody_is_known_without_accents_and_suggested_where_a_letter_is_wrong() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="PERSON", name="José Arreola"), NewEntity(type="PLACE", name="Oslo")], [])
    assert (await desk.ask("neighbours", entity="jose arreola"))["name"] == "José Arreola"
    with pytest.raises(EntityNotFound) as missing:
        await desk.ask("neighbours", entity="Jose Areola")
    assert missing.value.hint == "names like it: José Arreola"
    assert missing.value.advice == "Names like it: José Arreola."
    with pytest.raises(EntityNotFound) as missing:
        await desk.ask("neighbours", entity="Quux")
    assert (missing.value.hint, missing.value.advice) == ("find its exact name with semantic_search", "")


async def test_whoever_asks_for_a_part_of_a_name_is_told_the_whole() -> None:
    desk = ToolHarness()
    await desk.know([NewEntity(type="PERSON", name="Tom Becker"), NewEntity(type="ORG", name="Globex")], [])
    with pytest.raises(EntityNotFound) as missing:
        await desk.ask("neighbours", entity="Tom")
    told = error_content(missing.value)
    assert (told["action"], told["suggestions"]) == ("names like it: Tom Becker", ["Tom Becker"])
    with pytest.raises(EntityNotFound) as missing:
        await desk.ask("neighbours", entity="Quux")
    assert "suggestions" not in error_content(missing.value)


async def test_a_hub_is_not_walked_in_its_whole_breadth() -> None:
    desk = ToolHarness()
    crowd = MOST_EXPANDED + 5
    await desk.know(
        [
            NewEntity(type="ORG", name="Hub"),
            *(NewEntity(type="PERSON", name=f"P{n}") for n in range(crowd)),
            *(NewEntity(type="PLACE", name=f"L{n}") for n in range(crowd)),
        ],
        [
            *(NewRelationship(source="Hub", target=f"P{n}", type="KNOWS") for n in range(crowd)),
            *(NewRelationship(source=f"P{n}", target=f"L{n}", type="LIVES_IN") for n in range(crowd)),
        ],
    )
    answer = await desk.ask("neighbours", entity="Hub", hops=2)
    assert answer["total_found"] == crowd + MOST_EXPANDED
    assert [warning["code"] for warning in answer["warnings"]] == ["TRUNCATED"]
    assert "warnings" not in await desk.ask("neighbours", entity="Hub")
    places = await traverse(desk.store, 1, TraversalOptions(hops=2, entity_types=frozenset({"PLACE"})))
    assert set(places.leading) == set(places.reached)


class Crowded(MemoryKnowledgeStore):
    """Everybody is a hub: 1 knows those from 2 to 101, and each of them so many others."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self._others = others

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        self.asked.append("edges")
        if list(entity_ids) == [1]:
            return [Edge(id, 1, id, "KNOWS", 0.9) for id in range(2, 102)]
        return [
            Edge(place * self._others + other, id, 1000 + other, "KNOWS", 0.9 if other % 2 else 0.5)
            for place, id in enumerate(entity_ids, len(self.asked) * 100)
            for other in range(self._others)
        ]


async def test_hubs_behind_a_hub_are_walked_until_it_is_enough() -> None:
    few, many = Crowded(2), Crowded(MOST_EDGES // 35)
    assert not (await traverse(few, 1, TraversalOptions(hops=2))).cut
    walked = await traverse(many, 1, TraversalOptions(hops=2))
    assert walked.cut
    assert (few.asked.count("edges"), many.asked.count("edges")) == (1 + 5, 1 + 2)


async def test_of_very_many_neighbours_the_surest_are_kept() -> None:
    desk = ToolHarness()
    crowd = MOST_REACHED + 5
    await desk.know(
        [NewEntity(type="ORG", name="Hub"), *(NewEntity(type="PERSON", name=f"P{n}") for n in range(crowd))],
        [
            NewRelationship(source="Hub", target=f"P{n}", type="KNOWS", confidence=0.8 + n / 100_000)
            for n in range(crowd)
        ],
    )
    answer = await desk.ask("neighbours", entity="Hub", page_size=2)
    assert [entity["name"] for entity in answer["entities"]] == [f"P{crowd - 1}", f"P{crowd - 2}"]
    assert answer["total_found"] == MOST_REACHED
    (warning,) = answer["warnings"]
    assert (warning["code"], "hops" in warning["suggestion"]) == ("TRUNCATED", False)
    vendor = await desk.ask("find_vendor_info", vendor_name="Hub", response_mode="ids_only", page_size=2)
    assert vendor["pagination"]["total_available"] == 2 * crowd
    assert vendor["relationship_ids"] == [crowd, crowd - 1]


@pytest.mark.parametrize("hops", [0, 3, 1.5, True, "two"])
async def test_only_one_or_two_hops_are_walked(hops: object) -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="hops must be a whole number from 1 to 2"):
        await ToolHarness().ask("neighbours", entity="Acme", hops=hops)


async def test_the_way_through_somebody_of_another_type_is_told_too() -> None:
    answer = await (await town()).ask("neighbours", entity="Acme", hops=2, entity_types="PLACE")
    assert walked(answer) == [(PARIS, 2, 0.81)]
    assert answer["entities"][0]["via"]["name"] == "Bob"
    # From Acme to Bob, and from him and from the widget to Paris; nothing else of Bob's.
    assert related(answer) == [1, 3, 4]


async def test_without_a_field_of_entities_there_are_only_relationships() -> None:
    answer = await (await town()).ask("neighbours", entity="Acme", fields=["relationships"])
    assert "entities" not in answer
    assert related(answer) == [1, 2]


@pytest.mark.parametrize("argument", ["entity_types", "relationship_types"])
async def test_types_that_nobody_has_are_told_with_those_that_there_are(argument: str) -> None:
    asked: dict[str, Any] = {argument: "NOSUCH", "entity": "Acme", "min_confidence": 0}
    answer = await (await town()).ask("neighbours", **asked)
    assert answer["entities"] == []
    assert answer["warnings"] == [
        {
            "level": "warning",
            "code": "NO_SUCH_TYPE",
            "message": "Nobody within these hops is of the types that were asked for",
            "suggestion": "next to it are entity_types PERSON, PLACE, PRODUCT "
            "and relationship_types LOCATED_IN, MAKES, WORKS_FOR",
        }
    ]


async def test_types_that_nobody_has_however_unsure_are_told_as_that() -> None:
    answer = await (await town()).ask("neighbours", entity="Acme", entity_types="NOSUCH")
    assert [one["code"] for one in answer["warnings"]] == ["NO_SUCH_TYPE"]


async def test_those_who_are_only_unsure_are_not_told_as_of_other_types() -> None:
    answer = await (await town()).ask("neighbours", entity="Acme", entity_types="PLACE")
    assert [one["code"] for one in answer["warnings"]] == ["BELOW_CONFIDENCE"]
