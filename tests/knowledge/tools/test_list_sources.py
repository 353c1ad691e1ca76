"""list_sources tells what can be searched."""

import pytest

from headgate.knowledge.errors import InvalidKnowledgeArgument
from tests.knowledge.tools.tool_harness import ToolHarness


async def shelf(files: int = 12) -> ToolHarness:
    desk = ToolHarness()
    for n in range(files):
        await desk.add(f"{n:02}.md", f"text {n}", category="even" if n % 2 == 0 else "odd", date="2026-01-02")
    return desk


async def test_a_document_is_shown_with_what_is_known_of_it() -> None:
    answer = await (await shelf(1)).ask("list_sources")
    assert answer["sources"] == [
        {
            "source_id": 1,
            "source_file": "00.md",
            "source_category": "even",
            "doc_type": "",
            "title": "",
            "date": "2026-01-02",
            "total_chunks": 1,
            "size_bytes": 0,
            "ingested_at": None,
        }
    ]
    assert answer["total_found"] == 1


async def test_documents_come_in_pages_by_name_while_others_come_and_go() -> None:
    desk = await shelf()
    first = await desk.ask("list_sources", page_size=5)
    await desk.add("00a.md", "new")
    await desk.store.remove_sources(["06.md"])
    second = await desk.ask("list_sources", page_size=5, cursor=first["pagination"]["cursor"])
    third = await desk.ask("list_sources", page_size=5, cursor=second["pagination"]["cursor"])
    files = [source["source_file"] for page in (first, second, third) for source in page["sources"]]
    assert files == [f"{n:02}.md" for n in range(12) if n != 6]
    assert not third["pagination"]["has_more"]


async def test_filters_and_fields_choose() -> None:
    answer = await (await shelf()).ask(
        "list_sources", filters={"source_category": "odd"}, fields=["source_file"], page_size=2
    )
    assert answer["sources"] == [{"source_file": "01.md"}, {"source_file": "03.md"}]
    assert answer["pagination"]["total_available"] == 6


async def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(
        InvalidKnowledgeArgument, match=r"Invalid fields for list_sources: \['chunk_text'\]. Allowed"
    ):
        await ToolHarness().ask("list_sources", fields=["chunk_text"])


@pytest.mark.parametrize("filters", [None, {"source_category": "contracts"}])
async def test_that_nothing_was_ingested_is_told(filters: dict[str, str] | None) -> None:
    answer = await ToolHarness().ask("list_sources", filters=filters)
    assert [one["code"] for one in answer["warnings"]] == ["NOTHING_INGESTED"]
