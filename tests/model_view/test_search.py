"""Mode search: the model finds tools and calls them through the gateway's own tools."""

import pytest

from testkit.sdk_servers import shop
from tests.model_view.agents import AGENTS, Agent
from tests.model_view.gateway import TEST_SECONDS, Site
from tests.model_view.model import ModelView, Step, cache_id_in

pytestmark = pytest.mark.timeout(TEST_SECONDS)
# What stands at the end of each large result.
ENDS = {"log": f"request {shop.LARGE - 1}", "people": f"user{shop.LARGE - 1}"}


def call(label: str, tool: str, **arguments: object) -> Step:
    return Step(label, "call_tool", {"name": tool, "args": arguments})


def read_through(label: str) -> Step:
    """Find the end of a stored result by a tool that is not listed."""
    return Step(
        f"search {label}",
        "call_tool",
        lambda read: {
            "name": "proxy_search",
            "args": {"cache_id": cache_id_in(read[label]), "pattern": ENDS[label]},
        },
    )


STEPS = [
    Step("found", "retrieve_tools", {"query": "greet a person"}),
    Step("found nothing", "retrieve_tools", {"query": "zxqv wvut"}),
    call("small", "shop_greet", name="Grace"),
    call("both", "shop_both"),
    call("unknown", "shop_great", name="Grace"),
    call("refused", "shop_cancel_order"),
    call("log", "shop_log"),
    read_through("log"),
    call("people", "shop_people_open"),
    read_through("people"),
    call("documents", "knowledge_semantic_search", query="whistling marmot"),
    call("documents refused", "knowledge_get_chunk", chunk_id=4711),
]


@pytest.fixture(scope="module", params=AGENTS, ids=str)
def agent(request: pytest.FixtureRequest) -> Agent:
    chosen: Agent = request.param
    return chosen


@pytest.fixture(scope="module")
def view(agent: Agent, site: Site) -> ModelView:
    return site.talk(agent, STEPS, "search")


def test_the_model_is_offered_the_tools_that_find_and_call_all_others(
    agent: Agent, view: ModelView, site: Site
) -> None:
    listed = set(site.listed("search"))
    assert listed == {"retrieve_tools", "call_tool", "expandSchema"}
    assert {f"{agent.prefix}{name}" for name in listed} <= set(view.names)
    assert [name for name in view.names if "shop_" in name] == []


def test_the_model_may_give_call_tool_any_arguments(view: ModelView) -> None:
    assert view.named("call_tool").schema["properties"]["args"].get("additionalProperties") is not False


def test_a_tool_that_was_found_comes_with_its_name_and_schema_once(view: ModelView) -> None:
    read = view.results["found"]
    assert read.count("shop_greet") == 1
    assert "Greet a person by name." in read
    assert "input_schema" in read


def test_the_model_reads_that_nothing_was_found(view: ModelView) -> None:
    assert "No relevant tools found" in view.results["found nothing"]


def test_a_small_result_of_a_found_tool_arrives_whole(agent: Agent, view: ModelView) -> None:
    assert "Good morning, Grace!" in view.results["small"]
    said = {"text": shop.AS_TEXT, "structure": shop.AS_STRUCTURE}
    assert said[agent.shows] in view.results["both"]


def test_an_unknown_tool_is_named_with_the_nearest_and_the_way_to_others(view: ModelView) -> None:
    read = view.results["unknown"]
    assert "Unknown tool: 'shop_great'" in read
    assert "shop_greet" in read
    assert "retrieve_tools" in read


def test_the_model_reads_why_a_found_tool_refuses(view: ModelView) -> None:
    assert shop.LOCKED in view.results["refused"]


@pytest.mark.parametrize("label", ENDS)
def test_a_large_result_of_a_found_tool_is_read_by_its_cache_id(view: ModelView, label: str) -> None:
    read = view.results[label]
    assert ENDS[label] not in read
    assert read.count("Excerpt") == 1
    # The tools that read it are not listed: the notice says how they are called.
    assert "call_tool and one of proxy_search" in read
    assert ENDS[label] in view.results[f"search {label}"]


def test_the_model_reads_the_documents_that_were_found(view: ModelView) -> None:
    read = view.results["documents"]
    assert "docs/marmot.md" in read
    assert read.count("docs/marmot.md") == 1


def test_the_model_reads_what_the_documents_lack(view: ModelView) -> None:
    assert "Chunk 4711 not found" in view.results["documents refused"]
