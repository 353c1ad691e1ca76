"""get_chunk and get_chunks show passages whose ids are known."""

import pytest

from headgate.knowledge.errors import EntityNotFound, InvalidKnowledgeArgument, TokenBudgetExceeded
from headgate.knowledge.tools.response_modes import CHUNK_FIELDS, ResponseMode
from tests.knowledge.tools.tool_harness import ToolHarness


async def shelf(total: int | None = None) -> ToolHarness:
    desk = ToolHarness(total)
    await desk.add("a.md", "one", "two", "three", category="notes")
    return desk


async def test_a_chunk_is_shown_whole() -> None:
    assert await (await shelf()).ask("get_chunk", chunk_id=2) == {
        "chunk_id": 2,
        "chunk_text": "two",
        "source_file": "a.md",
        "source_category": "notes",
        "context_header": "a.md > Part",
        "chunk_index": 1,
        "total_chunks": 3,
        "chunk_token_count": 9,
    }


@pytest.mark.parametrize(
    "mode", [ResponseMode.IDS_ONLY, ResponseMode.METADATA, ResponseMode.PREVIEW, ResponseMode.FULL]
)
async def test_each_mode_has_its_keys_without_scores(mode: ResponseMode) -> None:
    answer = await (await shelf()).ask("get_chunks", chunk_ids=[1, 2], response_mode=mode)
    assert [set(chunk) for chunk in answer["results"]] == [set(CHUNK_FIELDS[mode])] * 2
    assert not any("score" in field or field == "rank" for field in CHUNK_FIELDS[mode])


async def test_those_that_are_gone_are_named() -> None:
    answer = await (await shelf()).ask("get_chunks", chunk_ids=[3, 99, "1", 3], fields=["chunk_text"])
    assert answer["results"] == [{"chunk_text": "three"}, {"chunk_text": "one"}]
    assert answer["missing"] == [99]


async def test_one_that_is_gone_is_not_found() -> None:
    with pytest.raises(EntityNotFound, match="Chunk 99 not found"):
        await (await shelf()).ask("get_chunk", chunk_id=99)


async def test_ids_that_are_not_given_are_asked_for() -> None:
    with pytest.raises(
        InvalidKnowledgeArgument, match=r"chunk_ids is missing; it must be a list of 1 to 50 ids$"
    ):
        await ToolHarness().ask("get_chunks")


@pytest.mark.parametrize("ids", [None, [], list(range(1, 52)), [0], [True], ["x"], 5, "1,2"])
async def test_ids_that_are_none_are_refused(ids: object) -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="chunk_ids"):
        await ToolHarness().ask("get_chunks", chunk_ids=ids)


@pytest.mark.parametrize("id", [None, 0, -1, 1.5, True, "one", 10**30, 2**63, float("nan")])
async def test_an_id_that_is_none_is_refused(id: object) -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="chunk_id"):
        await ToolHarness().ask("get_chunk", chunk_id=id)


async def test_texts_are_priced_by_what_they_have() -> None:
    assert len((await (await shelf(800)).ask("get_chunks", chunk_ids=[1, 2, 3]))["results"]) == 3
    with pytest.raises(
        TokenBudgetExceeded, match="may take 777; a list of the first 2 chunk_ids fits, or"
    ) as refused:
        await (await shelf(760)).ask("get_chunks", chunk_ids=[1, 2, 3])
    assert refused.value.hint.endswith("or response_mode 'metadata'")


@pytest.mark.parametrize(
    ("total", "advice"),
    [(740, "a list of the first 2 chunk_ids fits"), (240, "ask for less"), (20, "ask for less")],
)
async def test_who_cannot_afford_texts_is_not_told_to_ask_for_the_ids_that_he_has(
    total: int, advice: str
) -> None:
    with pytest.raises(TokenBudgetExceeded) as refused:
        await (await shelf(total)).ask("get_chunks", chunk_ids=[1, 2, 3])
    assert advice in refused.value.hint
    assert "ids_only" not in refused.value.hint
