"""Mode full: the tools that the model is offered, and what it reads of results, errors and questions."""

import pytest

from testkit.sdk_servers import shop
from tests.model_view.agents import AGENTS, Agent
from tests.model_view.gateway import TEST_SECONDS, Site
from tests.model_view.model import ModelView, Step

pytestmark = pytest.mark.timeout(TEST_SECONDS)
# The longest name that the APIs of OpenAI and Anthropic accept.
LONGEST_NAME = 64
STEPS = [
    Step("small", "shop_greet", {"name": "Grace"}),
    Step("both", "shop_both"),
    Step("refused", "shop_cancel_order"),
    Step("protocol error", "shop_book"),
    Step("down", "depot_fetch", {"text": "parcel 7"}),
    Step("asked", "shop_invite"),
]


@pytest.fixture(scope="module", params=AGENTS, ids=str)
def agent(request: pytest.FixtureRequest) -> Agent:
    chosen: Agent = request.param
    return chosen


@pytest.fixture(scope="module")
def view(agent: Agent, site: Site) -> ModelView:
    return site.talk(agent, STEPS, "full", answer="Ada")


def test_the_model_is_offered_every_tool_under_its_own_name(
    agent: Agent, view: ModelView, site: Site
) -> None:
    listed = [f"{agent.prefix}{name}" for name in site.listed("full")]
    assert len(listed) > 30
    assert {name for name in listed if view.names.count(name) != 1} == set()


def test_no_name_is_longer_than_model_apis_accept(agent: Agent, view: ModelView) -> None:
    assert max(map(len, view.names)) <= LONGEST_NAME
    # Of a name that does not fit the gateway cuts the server part first, so that agents leave it as it is.
    long = [name for name in view.names if "count_the_people" in name]
    assert long == [f"{agent.prefix}sh_count_the_people_who_have_bought_something_sin"]


def test_the_model_reads_the_description_of_a_tool_whole(agent: Agent, view: ModelView, site: Site) -> None:
    for name, listed in site.listed("full").items():
        assert view.named(name).description == listed["description"], name


def test_the_model_is_offered_every_argument(agent: Agent, view: ModelView, site: Site) -> None:
    for name, listed in site.listed("full").items():
        schema, offered = listed["inputSchema"], view.named(name).schema
        assert set(schema["properties"]) <= set(offered["properties"]), name
        assert set(schema.get("required", ())) <= set(offered.get("required", ())), name


def test_the_arguments_of_a_call_that_is_read_at_once_stay_open(view: ModelView) -> None:
    for name in ("proxy_search", "proxy_filter", "proxy_explore", "proxy_read", "proxy_query"):
        arguments = view.named(name).schema["properties"]["arguments"]
        assert arguments.get("additionalProperties") is not False, name


def test_the_agent_adds_only_the_arguments_that_are_known(agent: Agent, view: ModelView, site: Site) -> None:
    listed = site.listed("full")["shop_greet"]["inputSchema"]["properties"]
    assert view.named("shop_greet").schema["properties"].keys() - listed.keys() == agent.adds.keys()


def test_a_small_result_arrives_whole(agent: Agent, view: ModelView) -> None:
    assert "Good morning, Grace!" in view.results["small"]
    # A server, and so a tool of the gateway itself, gets what the agent adds.
    assert f"Not understood: {', '.join(agent.adds)}." in view.results["small"]


def test_of_text_and_structure_the_model_reads_one(agent: Agent, view: ModelView) -> None:
    said = {"text": shop.AS_TEXT, "structure": shop.AS_STRUCTURE}
    assert [form for form, words in said.items() if words in view.results["both"]] == [agent.shows]


def test_the_model_reads_why_a_tool_refuses(view: ModelView) -> None:
    assert shop.LOCKED in view.results["refused"]


def test_the_model_reads_an_error_of_the_protocol_unless_the_agent_hides_it(
    agent: Agent, view: ModelView
) -> None:
    assert (agent.hides_errors_behind or shop.CLOSED) in view.results["protocol error"]


def test_the_model_reads_that_a_server_is_down_and_what_to_do(view: ModelView) -> None:
    read = view.results["down"]
    assert "'depot' could not be reached" in read or "'depot' is not available" in read
    assert "try again" in read


def test_a_question_is_answered_or_the_model_reads_why_not(agent: Agent, view: ModelView) -> None:
    assert agent.elicited[0].format(answer="Ada") in view.results["asked"]
