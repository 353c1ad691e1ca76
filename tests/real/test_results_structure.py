"""Results whose structure is not plain JSON, through a running gateway and the official SDK."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Message
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration
from tests.real.large_results import (
    QUESTIONS,
    READERS,
    Agent,
    buried,
    facts,
    id_of,
    quarry_entry,
    said,
    texts,
)
from tests.real.mcp_clients import McpClients

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
DIG = "quarry_dig"
PEOPLE: Message = {
    "total": 400,
    "users": [
        {"name": f"user{n}", "email": f"u{n}@{('corp', 'gmail')[n % 2]}.example", "age": n % 90}
        for n in range(400)
    ],
}
PLAIN = json.dumps(PEOPLE)
CSV = "id,name,city\n" + "".join(f'{n},"Name, {n}",{("Oslo", "Rome")[n % 2]}\n' for n in range(800))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("structure")
    config = configuration({"quarry": quarry_entry()}, listResultTools=True)
    with running_gateway(config, place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("quarry", seconds=START_SECONDS)
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(gateway: GatewayProcess) -> AsyncIterator[McpClients]:
    staying = McpClients(gateway)
    yield staying
    await staying.leave()


@pytest_asyncio.fixture(loop_scope="module", params=["legacy", "modern"])
async def agent(guests: McpClients, request: pytest.FixtureRequest) -> Agent:
    return Agent(await guests.mcp_client("http", request.param))


async def stored(agent: Agent, place: Path, *written: str) -> str:
    """The id under which a large result with these texts is stored."""
    result = {"content": [{"type": "text", "text": words} for words in written]}
    return id_of(await agent.call(DIG, file=buried(place, result)))


async def first(agent: Agent, tool: str, /, **arguments: Any) -> str:
    reply = await agent.call(tool, **arguments)
    assert not reply.get("isError"), reply
    return texts(reply)[0]


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ((f"Here are the results:\n{PLAIN}",), ""),
        ((f"I found:\n```json\n{json.dumps(PEOPLE, indent=2)}\n```\nAnything else?",), ""),
        ((f"data: {PLAIN}\n\n",), ""),
        ((json.dumps({"ok": True, "result": PLAIN}),), "result."),
        ((json.dumps({"a": json.dumps({"b": PLAIN})}),), "a.b."),
        (("Found 400 users.", PLAIN), "[1]."),
    ],
    ids=["prefix", "fence", "event", "string", "twice", "beside"],
)
async def test_json_in_other_things_is_opened_by_all_five_tools(
    agent: Agent, tmp_path: Path, written: tuple[str, ...], start: str
) -> None:
    cache_id = await stored(agent, tmp_path, *written)
    paths = json.loads(await first(agent, "proxy_explore", cache_id=cache_id, max_depth=5))["paths"]
    path, name = f"{start}users", f"{start}users[].name"
    assert paths[path]["count"] == 400
    assert paths[name]["sample"] == "user0"
    assert await first(agent, "proxy_read", cache_id=cache_id, path=f"{path}[-1].name") == "user399"
    found = json.loads(await first(agent, "proxy_search", cache_id=cache_id, path=path, pattern="user399"))
    assert [one["age"] for one in found] == [39]
    found = json.loads(await first(agent, "proxy_search", cache_id=cache_id, pattern="user39[89]"))
    assert "user399" in json.dumps(found)
    assert "user397" not in json.dumps(found)
    names = await first(agent, "proxy_search", cache_id=cache_id, pattern="e.ail", mode="structure")
    assert json.loads(names)["paths"][0]["count"] == 400
    kept = await first(agent, "proxy_filter", cache_id=cache_id, path=path, fields=["name"])
    assert json.loads(kept)[7] == {"name": "user7"}
    assert "user7" in await first(agent, "proxy_filter", cache_id=cache_id, fields=[name])
    sql = "SELECT count(*) FROM rows WHERE email LIKE '%gmail%'"
    for more in ({}, {"path": path}):
        assert json.loads(await first(agent, "proxy_query", cache_id=cache_id, sql=sql, **more))["rows"] == [
            [200]
        ]


# So few that their names fit into a reply as text and as structure.
FEW: Message = {"total": 180, "users": PEOPLE["users"][:180]}
NAMES = {"users": [{"name": user["name"]} for user in FEW["users"]]}


@pytest.mark.parametrize("tool", READERS)
async def test_no_reply_hides_its_note_behind_structured_content(
    agent: Agent, tmp_path: Path, tool: str
) -> None:
    # Several clients show a model structuredContent and no text.
    file = buried(tmp_path, said(json.dumps(FEW), structuredContent=FEW))
    reply = await agent.call(tool, tool=DIG, arguments={"file": file}, **QUESTIONS[tool])
    note = texts(reply)[-1]
    assert facts(reply)["cache_id"] in note
    if tool == "proxy_filter":
        told = {"notice": note, "cache_id": facts(reply)["cache_id"]}
        assert reply["structuredContent"] == {"_headgate": told, **NAMES}
        assert next(iter(reply["structuredContent"])) == "_headgate"
    else:
        assert "structuredContent" not in reply


@pytest.mark.parametrize(
    ("written", "fields", "told"),
    [
        (json.dumps({"users": FEW["users"]}), ["users.name", "total"], "not found: total"),
        (f"Here are the users:\n{json.dumps(FEW)}", ["users.name"], "this is the JSON in the text"),
    ],
    ids=["missing", "around"],
)
async def test_a_filter_with_more_to_say_than_its_id_says_it_in_structured_content(
    agent: Agent, tmp_path: Path, written: str, fields: list[str], told: str
) -> None:
    result = said(written, structuredContent=FEW)
    cache_id = id_of(await agent.call(DIG, file=buried(tmp_path, result)))
    reply = await agent.call("proxy_filter", cache_id=cache_id, fields=fields)
    note = texts(reply)[-1]
    assert told in note
    assert reply["structuredContent"].pop("_headgate") == {"notice": note, "cache_id": cache_id}
    assert reply["structuredContent"]["users"] == NAMES["users"]
    written = json.dumps(reply["structuredContent"], separators=(",", ":"))
    assert facts(reply)["processed_size"] > len(written) + len(note)


async def test_a_filter_of_which_a_page_is_shown_has_no_structured_content(
    agent: Agent, tmp_path: Path
) -> None:
    result = said(PLAIN, structuredContent=PEOPLE)
    cache_id = id_of(await agent.call(DIG, file=buried(tmp_path, result)))
    reply = await agent.call("proxy_filter", cache_id=cache_id, exclude=["total"])
    assert "more with offset" in texts(reply)[-1]
    assert "structuredContent" not in reply


async def test_a_filter_with_nothing_else_to_say_has_it_as_it_is(agent: Agent, tmp_path: Path) -> None:
    pretty = json.dumps(FEW, indent=2)
    cache_id = id_of(await agent.call(DIG, file=buried(tmp_path, said(pretty, structuredContent=FEW))))
    reply = await agent.call("proxy_filter", cache_id=cache_id, fields=["users.name"])
    assert reply["structuredContent"] == NAMES
    content, note = texts(reply)
    assert note == f"cache_id: {cache_id}"
    # The client shows one of the two.
    written = json.dumps(NAMES, separators=(",", ":"))
    assert facts(reply)["processed_size"] == max(len(content) + len(note), len(written))


async def test_one_call_filters_and_then_searches(agent: Agent, tmp_path: Path) -> None:
    file = buried(tmp_path, {"content": [{"type": "text", "text": PLAIN}]})
    wish = {"fields": ["users.name", "users.age"], "pattern": "user399|gmail"}
    reply = await agent.call("proxy_search", tool=DIG, arguments={"file": file}, **wish)
    assert json.loads(texts(reply)[0]) == {"users": [{"name": "user399", "age": 39}]}
    assert facts(reply)["projection"]["fields"] == wish["fields"]
    assert facts(reply)["search"]["matches"] == 1
    reply = await agent.call("proxy_search", cache_id=facts(reply)["cache_id"], fields=[], pattern="x")
    assert reply["isError"]
    assert "fields is empty" in texts(reply)[0]


async def test_csv_is_filtered_by_column_and_named_by_structure(agent: Agent, tmp_path: Path) -> None:
    cache_id = await stored(agent, tmp_path, CSV)
    assert json.loads(await first(agent, "proxy_explore", cache_id=cache_id))["columns"] == [
        "id",
        "name",
        "city",
    ]
    rows = [
        line
        async for page in agent.pages("proxy_filter", cache_id=cache_id, fields=["id", "name"])
        for line in page.split("\n")
    ]
    assert [row for row in rows if row != "id,name"] == [f'{n},"Name, {n}"' for n in range(800)]
    names = json.loads(await first(agent, "proxy_search", cache_id=cache_id, pattern="^c", mode="structure"))
    assert names["paths"] == [{"path": "city", "types": ["string"], "count": 800, "sample": "Oslo"}]
    note = texts(await agent.call("proxy_filter", cache_id=cache_id, fields=["nmae"]))[-1]
    assert "not found: nmae (nearest: name" in note


async def test_csv_whose_first_column_only_numbers_the_rows_is_a_table(agent: Agent, tmp_path: Path) -> None:
    # As pandas writes it.
    numbered = ",name,amount\n" + "".join(f"{n},Name {n},{n}.5\n" for n in range(800))
    cache_id = await stored(agent, tmp_path, numbered)
    told = json.loads(await first(agent, "proxy_explore", cache_id=cache_id))
    assert (told["looks_like"], told["columns"]) == ("csv", ["_", "name", "amount"])
    answer = await first(agent, "proxy_query", cache_id=cache_id, sql="SELECT max(_), sum(amount) FROM rows")
    assert json.loads(answer)["rows"] == [[799, 320_000.0]]
    kept = await first(agent, "proxy_filter", cache_id=cache_id, fields=["_", "name"])
    assert kept.splitlines()[:2] == ["_,name", "0,Name 0"]
    # Other texts that begin with a separator have no header line.
    other = ",name,amount\n" + "".join(f"x{n},Name {n},{n}.5\n" for n in range(800))
    told = json.loads(await first(agent, "proxy_explore", cache_id=await stored(agent, tmp_path, other)))
    assert "columns" not in told


@pytest.mark.parametrize(
    ("written", "kind", "place", "count"),
    [
        ("<r>\n" + "<item id='1'><name>x</name></item>\n" * 400 + "</r>", "xml", "r/item", 400),
        ("<!DOCTYPE html><html><body>\n" + "<p class='a'>x</p>\n" * 700 + "</body></html>", "html", "p", 700),
        ("items:\n" + "- name: x\n  port: 1\n" * 700, "yaml", "items[].port", 700),
    ],
    ids=["xml", "html", "yaml"],
)
async def test_xml_html_and_yaml_show_their_structure(
    agent: Agent, tmp_path: Path, written: str, kind: str, place: str, count: int
) -> None:
    cache_id = await stored(agent, tmp_path, written)
    told = json.loads(await first(agent, "proxy_explore", cache_id=cache_id))
    assert told["looks_like"] == kind
    assert told["outline"][place]["count"] == count
    # The offset is the line at which it is read.
    line = told["outline"][place]["offset"]
    assert (
        await first(agent, "proxy_read", cache_id=cache_id, offset=line, limit=1) == written.split("\n")[line]
    )
    reply = await agent.call("proxy_read", cache_id=cache_id, path="a.b")
    assert reply["isError"]
    assert "no JSON" in texts(reply)[0]


async def test_entities_are_never_expanded(agent: Agent, tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "lol">{entities}]><a>{"&l9;" * 2_500}</a>'
    told = json.loads(await first(agent, "proxy_explore", cache_id=await stored(agent, tmp_path, bomb)))
    assert "entities are not expanded" in told["broken"]


async def test_a_log_with_colours_is_a_log(agent: Agent, tmp_path: Path) -> None:
    log = "\n".join(
        f"\x1b[90m2026-01-01T00:00:00Z\x1b[0m \x1b[31mERROR\x1b[0m failed {n}" for n in range(300)
    )
    told = json.loads(await first(agent, "proxy_explore", cache_id=await stored(agent, tmp_path, log)))
    assert (told["looks_like"], told["levels"]) == ("log", {"ERROR": 300})
