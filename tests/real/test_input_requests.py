"""What a server asks reaches the client that caused it, in either era, and the answer returns to the call."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, http_server, lines_of, listening, stdio_entry, whole_command
from testkit.waiting import eventually, wait_until
from tests.real.answering_clients import Company, Person
from tests.real.mcp_clients import McpClient, stdio_gateway
from tests.real.sdk_scripts import run_script

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
# npm server-everything by each transport.
EVERYTHING = ("stdio", "http", "sse")
# Our own server of each era.
OWN = ("old", "new")


@dataclass(frozen=True)
class Town:
    """A gateway in front of servers that ask, and the journals of those that keep one."""

    gateway: GatewayProcess
    entries: dict[str, Any]
    journals: dict[str, Path]

    def over(self, server: str, call: str) -> bool:
        """Whether the server works on the call no longer."""
        return bool({f"finished {call}", f"cancelled {call}"} & set(lines_of(self.journals[server])))


@pytest.fixture(scope="module")
def town(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    place = tmp_path_factory.mktemp("questions")
    journals = {name: place / f"{name}.journal" for name in OWN}
    everything = [str(parts.node), str(parts.npm_bin("mcp-server-everything"))]
    filesystem = [str(parts.node), str(parts.npm_bin("mcp-server-filesystem"))]
    with ExitStack() as stack:
        http = stack.enter_context(listening([*everything, "streamableHttp"]))
        sse = stack.enter_context(listening([*everything, "sse"]))
        old = whole_command("legacy", "old", journals["old"])
        new = whole_command("modern", "new", journals["new"])
        servers: dict[str, Any] = {
            "stdio": stdio_entry([*everything, "stdio"]),
            "http": {"url": f"{http}/mcp"},
            "sse": {"url": f"{sse}/sse", "transport": "sse"},
            "files": stdio_entry([*filesystem, str(place)]),
            "old": {"url": stack.enter_context(http_server(old))},
            "new": {"url": stack.enter_context(http_server(new))},
        }
        gateway = stack.enter_context(
            running_gateway(configuration(servers), place, start_seconds=START_SECONDS)
        )
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield Town(gateway, servers, journals)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(town: Town) -> AsyncIterator[Company]:
    people = Company(town.gateway.url)
    yield people
    await people.leave()


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest_asyncio.fixture(loop_scope="module")
async def ann(company: Company, era: str) -> Person:
    return await company.person("Ann", era)


# Every kind of question, by every transport, to clients of both eras.


@pytest.mark.parametrize("server", EVERYTHING)
async def test_a_form_of_a_real_server_is_filled_in_by_the_client(ann: Person, server: str) -> None:
    told = await ann.call(f"{server}_trigger_elicitation_request")

    assert "- Name: Ann" in told
    assert ann.asked == ["Please provide inputs for the following fields:"]


@pytest.mark.parametrize("server", EVERYTHING)
async def test_a_link_of_a_real_server_is_opened_by_the_client(ann: Person, server: str) -> None:
    number = uuid4().hex
    told = await ann.call(
        f"{server}_trigger_url_elicitation",
        url="https://example.org/pay",
        message=f"Please pay {number}",
        elicitationId=number,
    )

    assert f"Elicitation ID: {number}" in told
    assert "User completed" in told
    assert ann.asked == [f"Please pay {number}"]


@pytest.mark.parametrize("server", EVERYTHING)
async def test_a_real_server_borrows_the_model_of_the_client(ann: Person, server: str) -> None:
    told = await ann.call(f"{server}_trigger_sampling_request", prompt="the tides", maxTokens=20)

    assert "the model of Ann" in told
    assert "Ann on Resource trigger-sampling-request context: the tides" in told
    assert len(ann.asked) == 1


@pytest.mark.parametrize("server", EVERYTHING)
async def test_a_real_server_sees_the_roots_of_the_client(ann: Person, server: str) -> None:
    told = await ann.call(f"{server}_get_roots_list")

    assert "1. Ann\n   URI: file:///home/Ann" in told


@pytest.mark.parametrize("server", OWN)
@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("ask", "Ann"),
        ("ask_link", "accept"),
        ("ask_model", "Ann on {text}"),
        ("ask_roots", "Ann"),
        ("ask_all", "Ann, Ann on {text}, Ann"),
        ("ask_twice", "Ann, Ann on {text} 2"),
    ],
)
async def test_servers_of_both_eras_ask_clients_of_both(
    ann: Person, server: str, tool: str, answer: str
) -> None:
    text = uuid4().hex

    assert await ann.call(f"{server}_{tool}", text=text) == f"{text}: {answer.format(text=text)}"


@pytest.mark.parametrize("server", OWN)
async def test_a_prompt_may_ask_too(ann: Person, server: str) -> None:
    prompt = await ann.client.get_prompt(f"{server}_ask_first")

    (message,) = prompt.messages
    assert isinstance(message.content, TextContent)
    assert message.content.text == f"{server} greets Ann"
    assert ann.asked == ["Who reads the prompt?"]


@pytest.mark.parametrize("server", OWN)
async def test_a_resource_may_ask_too(ann: Person, server: str) -> None:
    read = await ann.client.read_resource(f"{server}://question")

    (contents,) = read.contents
    assert isinstance(contents, TextResourceContents)
    assert contents.text == "for Ann"
    assert ann.asked == ["Who reads the resource?"]


@pytest.mark.parametrize(
    ("front", "client_era"), [("stdio", "legacy"), ("stdio", "modern"), ("sse", "legacy")]
)
async def test_questions_leave_by_every_front(
    town: Town, tmp_path: Path, front: str, client_era: str
) -> None:
    config = tmp_path / "headgate.json"
    config.write_text(json.dumps(configuration({name: town.entries[name] for name in OWN})))
    front_transport: Any = (
        stdio_gateway(config, tmp_path / "data") if front == "stdio" else sse_client(town.gateway.sse_url)
    )
    sue = Person("Sue", front_transport, client_era)
    async with sue.client:
        for server in OWN:
            texts = [uuid4().hex for _ in range(3)]
            told = await asyncio.gather(*(sue.call(f"{server}_ask_twice", text=text) for text in texts))
            assert told == [f"{text}: Sue, Sue on {text} 2" for text in texts]


@pytest.mark.parametrize(
    ("client", "client_era"),
    [("typescript-1-asked", "legacy"), ("typescript-2-asked", "legacy"), ("typescript-2-asked", "modern")],
)
async def test_clients_on_typescript_answer_servers_of_both_eras(
    town: Town, parts: Parts, client: str, client_era: str
) -> None:
    calls = [
        {"name": f"{server}_{tool}", "arguments": {"text": f"{server} {tool}"}}
        for server in OWN
        for tool in ("ask", "ask_link", "ask_model", "ask_roots", "ask_all", "ask_twice")
    ]
    calls.append({"name": "stdio_trigger_elicitation_request", "arguments": {}})
    plan = {"url": town.gateway.url, "era": client_era, "name": "Tess", "calls": calls}

    *own, everything = await asyncio.to_thread(run_script, client, plan, parts)

    expected = []
    for server in OWN:
        for tool, answer in (
            ("ask", "Tess"),
            ("ask_link", "accept"),
            ("ask_model", f"Tess on {server} ask_model"),
            ("ask_roots", "Tess"),
            ("ask_all", f"Tess, Tess on {server} ask_all, Tess"),
            ("ask_twice", f"Tess, Tess on {server} ask_twice 2"),
        ):
            expected.append(f"{server} {tool}: {answer}")
    assert own == expected
    assert "- Name: Tess" in everything


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_the_filesystem_server_serves_the_roots_of_each_client(
    town: Town, company: Company, tmp_path: Path
) -> None:
    people = [await company.person(name, "legacy") for name in ("Fay", "Gus")]
    for person in people:
        person.home = str(tmp_path / person.name)
        Path(person.home).mkdir()
    for person in people:
        await allowed(person, person.home)

    fay, gus = people
    fay.home = str(tmp_path / "moved")
    Path(fay.home).mkdir()
    await fay.client.session.send_roots_list_changed()

    await allowed(fay, fay.home)
    await allowed(gus, gus.home)


async def allowed(person: Person, directory: str) -> None:
    """Wait until the server lets the client see exactly this directory: it asks after it was greeted."""
    async with asyncio.timeout(NOTICE_SECONDS):
        while True:
            told = await person.call("files_list_allowed_directories")
            if told == f"Allowed directories:\n{directory}":
                return


# Whose question it is.


@pytest.mark.parametrize("server", [*EVERYTHING, *OWN])
async def test_every_question_reaches_the_client_that_caused_it(company: Company, server: str) -> None:
    people = [await company.person(name, "legacy") for name in ("Ann", "Bob")]
    people += [await company.person(name, "modern") for name in ("Ann", "Cyd")]
    calls = [(person, f"{person.name} {person.era} {uuid4().hex}") for person in people for _ in range(3)]

    answers = await asyncio.gather(*(sample(person, server, text) for person, text in calls))

    for (person, text), told in zip(calls, answers, strict=True):
        assert f"{person.name} on " in told
        assert told.count(text) >= 1, told
        assert not [other for _, other in calls if other != text and other in told]
    for person in people:
        mine = [text for one, text in calls if one is person]
        asked = [question.rpartition(": ")[2] for question in person.asked]
        assert sorted(asked) == sorted(mine)


async def sample(person: Person, server: str, text: str) -> str:
    if server in OWN:
        return await person.call(f"{server}_ask_model", text=text)
    return await person.call(f"{server}_trigger_sampling_request", prompt=text, maxTokens=20)


@pytest.mark.parametrize("server", OWN)
async def test_answers_in_another_order_return_to_their_own_calls(
    company: Company, era: str, server: str
) -> None:
    slow, quick = await company.person("Ann", era), await company.person("Cyd", era)
    slow.willing.clear()
    try:
        waiting = asyncio.create_task(slow.call(f"{server}_ask", text="first"))
        await eventually(lambda: slow.asked == ["first"], NOTICE_SECONDS, "the first is asked")
        assert await quick.call(f"{server}_ask", text="second") == "second: Cyd"
        assert not waiting.done()
    finally:
        slow.willing.set()

    assert await waiting == "first: Ann"
    assert quick.asked == ["second"]


# Clients that are not like the others.


@pytest.mark.parametrize("server", OWN)
async def test_a_client_without_a_stream_of_its_own_is_asked_on_that_of_the_call(
    town: Town, server: str
) -> None:
    client = Handshaker(town.gateway.url, ANSWERS_ALL)
    stream = client.call(f"{server}_ask", text="quietly")
    question = stream.until("elicitation/create")

    client.reply(question, result={"action": "accept", "content": {"name": "Raw"}})

    assert stream.answer()["result"]["content"][0]["text"] == "quietly: Raw"
    stream.close()
    client.leave()


@pytest.mark.parametrize("server", OWN)
async def test_a_client_that_declines_is_heard(company: Company, era: str, server: str) -> None:
    dan = await company.person("Dan", era, action="decline")

    assert await dan.call(f"{server}_ask", text="please") == "please: decline"


async def test_an_error_of_a_handshake_client_is_the_answer_to_the_server(company: Company) -> None:
    eve = await company.person("Eve", "legacy", action="error")

    assert await eve.call("old_ask", text="please") == "refused with 4712"


async def test_an_error_of_a_handshake_client_ends_a_call_to_a_stateless_server(company: Company) -> None:
    eve = await company.person("Eve", "legacy", action="error")

    with pytest.raises(MCPError, match="Eve does not answer"):
        await eve.call("new_ask", text="please")


@pytest.mark.parametrize("server", OWN)
async def test_a_stateless_client_that_never_comes_back_holds_up_nobody(
    company: Company, server: str
) -> None:
    eve = await company.person("Eve", "modern", action="error")
    with pytest.raises(MCPError, match="Eve does not answer"):
        await eve.call(f"{server}_ask", text="please")

    cyd = await company.person("Cyd", "modern")

    assert await cyd.call(f"{server}_ask", text="and you") == "and you: Cyd"


async def test_a_session_that_ends_while_its_client_is_asked_ends_the_call(town: Town) -> None:
    text = uuid4().hex
    client = Handshaker(town.gateway.url, ANSWERS_ALL)
    stream = client.call("old_ask", text=text)
    stream.until("elicitation/create")
    lines = town.gateway.servers()["old"].get("client_connections", 0)

    client.leave()
    stream.close()

    wait_until(lambda: town.over("old", f"ask {text}"), NOTICE_SECONDS, "the server is told")
    wait_until(
        lambda: town.gateway.servers()["old"].get("client_connections", 0) < lines,
        NOTICE_SECONDS,
        "its line is closed",
    )


@pytest.mark.parametrize("front", ["http", "sse"])
async def test_a_call_that_its_client_cancels_while_it_is_asked_is_over(town: Town, front: str) -> None:
    text = uuid4().hex
    front_transport: Any = sse_client(town.gateway.sse_url) if front == "sse" else town.gateway.url
    sue = Person("Sue", front_transport, "legacy")
    sue.willing.clear()
    async with sue.client:
        asking = asyncio.create_task(sue.call("old_ask", text=text))
        await eventually(lambda: sue.asked == [text], NOTICE_SECONDS, "it is asked")
        asking.cancel()
        await eventually(lambda: town.over("old", f"ask {text}"), NOTICE_SECONDS, "the server is told")
        sue.willing.set()

        assert await sue.call("old_ask", text="again") == "again: Sue"


async def test_a_client_that_vanishes_while_it_is_asked_does_no_harm_to_others(
    town: Town, company: Company
) -> None:
    text = uuid4().hex
    lost = Handshaker(town.gateway.url, ANSWERS_ALL)
    stream = lost.call("old_ask", text=text)
    stream.until("elicitation/create")
    stream.close()

    for era in ("legacy", "modern"):
        cyd = await company.person("Cyd", era)
        assert await cyd.call("old_ask", text="still here") == "still here: Cyd"

    # It could still come back for its answer; only when its session ends is the call over.
    assert not town.over("old", f"ask {text}")
    lost.leave()
    await eventually(lambda: town.over("old", f"ask {text}"), NOTICE_SECONDS, "the server is told")


async def test_a_server_that_asks_for_what_nobody_declared_is_refused_and_goes_on(town: Town) -> None:
    for era in ("legacy", "modern"):
        mcp_client = McpClient(town.gateway.url, era)
        async with mcp_client.client:
            result = await mcp_client.client.call_tool("old_ask_model", {"text": "undeclared"})
            (content,) = result.content
            assert isinstance(content, TextContent)
            assert content.text == "refused with -32601"


@pytest.mark.parametrize(
    ("declared", "tool"),
    [
        ({"elicitation": {}}, "ask_model"),
        ({"sampling": {}}, "ask"),
        ({"elicitation": {"form": {}}}, "ask_link"),
        ({"elicitation": {"url": {}}}, "ask"),
        ({"elicitation": {"form": {}, "url": {}}}, "ask_roots"),
    ],
    ids=str,
)
@pytest.mark.parametrize("server", OWN)
async def test_a_server_may_not_ask_beyond_what_the_client_declared(
    town: Town, declared: dict[str, Any], tool: str, server: str
) -> None:
    handshaker = Handshaker(town.gateway.url, declared)
    call = {"name": f"{server}_{tool}", "arguments": {"text": "beyond"}}
    results = [
        handshaker.ask("tools/call", call)["result"],
        Stateless(town.gateway.url, declared).ask("tools/call", call)["result"],
    ]
    handshaker.leave()

    for result in results:
        if server == "old":
            assert result["content"][0]["text"] == "refused with -32601"
        else:
            assert result["isError"]
            assert result["_meta"]["io.headgate/error"]["code"] == "INVALID_MESSAGE"
