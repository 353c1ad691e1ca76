"""Mode slim over stdio: each agent starts a gateway of its own, before a server of the stateless era."""

import json
import shutil

import pytest

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import stdio_entry
from tests.model_view.agents import AGENTS, Agent
from tests.model_view.gateway import START_SECONDS, TEST_SECONDS, Site, site_configuration
from tests.model_view.model import ModelView, Step
from tests.real.mcp_clients import stdio_gateway_command

pytestmark = pytest.mark.timeout(TEST_SECONDS)
STEPS = [
    Step("expanded", "expandSchema", {"toolName": "files_edit_file"}),
    Step("unknown", "expandSchema", {"toolName": "shop_great"}),
    Step("small", "shop_greet", {"name": "Grace"}),
    Step("asked", "shop_invite"),
]


@pytest.fixture(scope="module", params=AGENTS, ids=str)
def agent(request: pytest.FixtureRequest) -> Agent:
    chosen: Agent = request.param
    return chosen


@pytest.fixture(scope="module")
def known(site: Site) -> GatewayProcess:
    """A gateway that has ended and left behind what its servers list.

    A first listing waits 5 s for servers that were never seen, which on a loaded machine are not enough.
    """
    config = site_configuration(site.parts, site.work, era="modern")
    config["proxySettings"]["listing"] = "slim"
    with running_gateway(config, site.place / "slim", start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
    return gateway


@pytest.fixture(scope="module")
def view(agent: Agent, site: Site, known: GatewayProcess) -> ModelView:
    """What the model saw; the agent starts the gateway, and has been told no answer to a question."""
    data = site.place / f"slim-{agent}"
    shutil.copytree(known.data_dir, data)
    return site.talk_through(agent, STEPS, stdio_entry(stdio_gateway_command(known.config_path, data)))


def test_the_model_is_offered_every_tool_in_few_words(agent: Agent, view: ModelView, site: Site) -> None:
    slim, full = site.listed("slim"), site.listed("full")
    shared = [name for name in slim if name.startswith(("shop_", "files_", "proxy_", "expandSchema"))]
    assert len(shared) > 25
    assert {name for name in shared if view.names.count(f"{agent.prefix}{name}") != 1} == set()
    assert {name for name in shared if view.named(name).description != slim[name]["description"]} == set()
    assert len(json.dumps(slim["files_edit_file"])) < len(json.dumps(full["files_edit_file"]))


def test_the_model_reads_the_whole_schema_of_a_tool_once(view: ModelView, site: Site) -> None:
    schema = json.dumps(site.listed("full")["files_edit_file"]["inputSchema"], separators=(",", ":"))
    assert view.results["expanded"].count(schema) == 1


def test_the_model_reads_which_tools_have_a_schema_unless_the_agent_hides_it(
    agent: Agent, view: ModelView
) -> None:
    read = view.results["unknown"]
    assert "shop_greet" in read or (agent.hides_errors_behind and agent.hides_errors_behind in read)


def test_a_small_result_arrives_whole(view: ModelView) -> None:
    assert "Good morning, Grace!" in view.results["small"]


def test_a_question_that_nobody_answers_is_refused_or_the_model_reads_why(
    agent: Agent, view: ModelView
) -> None:
    assert agent.elicited[1] in view.results["asked"]
