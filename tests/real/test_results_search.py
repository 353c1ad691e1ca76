"""Searches in long lines, several blocks and coloured text, as a client of the official SDK meets them."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Message
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration
from tests.real.large_results import LIMIT, Agent, buried, facts, id_of, quarry_entry, said, texts
from tests.real.mcp_clients import McpClients

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
DIG = "quarry_dig"
COUNT = 40
ROWS = [{"id": n, "name": f"User {n}", "note": "lorem ipsum " * 30} for n in range(COUNT)]
HTML = "".join(f'<div class="r"><b>User {n}</b><p>{"lorem ipsum " * 30}</p></div>' for n in range(COUNT))
ONE_LINE = {
    "html": [HTML],
    "repr": [repr(ROWS)],
    "prefixed": [f"Found {COUNT}: {json.dumps(ROWS)}"],
    "fenced": [f"```json\n{json.dumps(ROWS)}\n```"],
    "blocks": ["The users:", f"<table>{HTML}</table>", "That is all."],
}
LEVELS = ["ERROR" if n % 100 == 7 else "INFO" for n in range(1200)]
LINED = {
    "log": "\n".join(f"2026-01-01T00:00:00Z {level} request {n} done" for n, level in enumerate(LEVELS)),
    "ndjson": "\n".join(json.dumps({"id": n, "level": level}) for n, level in enumerate(LEVELS)),
    "csv": "id,level,text\n" + "\n".join(f"{n},{level},some text" for n, level in enumerate(LEVELS)),
    "xml": "<log>\n" + "\n".join(f'  <e id="{n}">{level}</e>' for n, level in enumerate(LEVELS)) + "\n</log>",
    "yaml": "log:\n" + "\n".join(f"  - id: {n}\n    level: {level}" for n, level in enumerate(LEVELS)),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    config = configuration({"quarry": quarry_entry()}, listResultTools=True, maxEntriesPerAgent=1000)
    with running_gateway(config, tmp_path_factory.mktemp("search"), start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("quarry", seconds=START_SECONDS)
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(gateway: GatewayProcess) -> AsyncIterator[Agent]:
    guests = McpClients(gateway)
    yield Agent(await guests.mcp_client("http", "modern"))
    await guests.leave()


async def stored(agent: Agent, place: Path, result: Message) -> str:
    return id_of(await agent.call(DIG, file=buried(place, result)))


@pytest.mark.parametrize("kind", ONE_LINE)
async def test_every_match_in_text_without_line_breaks_is_counted_and_shown_once(
    agent: Agent, tmp_path: Path, kind: str
) -> None:
    cache_id = await stored(agent, tmp_path, said(*ONE_LINE[kind]))
    asked = {"cache_id": cache_id, "pattern": r"User \d+"}

    first = await agent.call("proxy_search", **asked)
    pages = [page async for page in agent.pages("proxy_search", **asked)]

    assert facts(first)["search"]["matches"] == COUNT
    seen = Counter(name for page in pages for name in re.findall(r"User \d+", page))
    assert seen == {f"User {n}": 1 for n in range(COUNT)}
    assert len(pages) <= 3


@pytest.mark.parametrize("kind", ["html", "repr", "blocks"])
async def test_a_cut_hit_is_marked_and_its_surroundings_can_be_read(
    agent: Agent, tmp_path: Path, kind: str
) -> None:
    cache_id = await stored(agent, tmp_path, said(*ONE_LINE[kind]))

    shown, note = texts(await agent.call("proxy_search", cache_id=cache_id, pattern=r"User 17\b"))

    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) < 300
    assert "1 of 1 matches" in note
    assert "1 cut at …" in note
    assert ("in content block 1" in note) is (kind == "blocks")
    named = re.search(r"proxy_read with unit characters and an offset a little before (\d+)", note)
    assert named is not None
    read = await agent.call("proxy_read", cache_id=cache_id, unit="characters", offset=int(named[1]), limit=7)
    assert texts(read)[0] == "User 17"


@pytest.mark.parametrize("kind", LINED)
async def test_context_shows_a_few_lines_of_what_has_no_paragraphs(
    agent: Agent, tmp_path: Path, kind: str
) -> None:
    cache_id = await stored(agent, tmp_path, said(LINED[kind]))

    reply = await agent.call("proxy_search", cache_id=cache_id, pattern="ERROR", mode="context")

    shown, note = texts(reply)
    assert "5 of 12 matches; more with offset 5" in note
    passages = shown.split("\n--\n")
    assert len(passages) == 5
    assert max(map(len, passages)) < 400
    pages = agent.pages("proxy_search", cache_id=cache_id, pattern="ERROR", mode="context")
    assert sum([page.count("ERROR") async for page in pages]) == 12


async def test_a_large_element_of_json_is_cut_around_each_match_and_stays_json(
    agent: Agent, tmp_path: Path
) -> None:
    body = "".join("word " * 250 + f"<hit{n}>" for n in range(COUNT))
    cache_id = await stored(agent, tmp_path, said(json.dumps([{"id": 1, "body": body}, {"id": 2}])))
    asked = {"cache_id": cache_id, "pattern": r"<hit\d+>"}

    assert facts(await agent.call("proxy_search", **asked))["search"]["matches"] == COUNT
    seen: Counter[str] = Counter()
    async for page in agent.pages("proxy_search", **asked):
        assert len(page) <= LIMIT
        seen.update(re.findall(r"<hit\d+>", json.loads(page)[0]["body"]))
    assert seen == {f"<hit{n}>": 1 for n in range(COUNT)}


@pytest.mark.parametrize("pattern", ['"id":999', '"id": 999', '"id":999,"name"', '"id": 999, "name"'])
@pytest.mark.parametrize("kind", ["structure", "indented", "lines"])
async def test_json_is_found_with_and_without_spaces(
    agent: Agent, tmp_path: Path, pattern: str, kind: str
) -> None:
    rows = [{"id": n, "name": f"User {n}"} for n in range(1500)]
    result = {
        "structure": said(structuredContent={"rows": rows}),
        "indented": said(json.dumps(rows, indent=2), structuredContent={"rows": rows}),
        "lines": said("\n".join(map(json.dumps, rows))),
    }[kind]

    reply = await agent.call("proxy_search", cache_id=await stored(agent, tmp_path, result), pattern=pattern)

    assert "User 999" in texts(reply)[0]
    assert facts(reply)["search"]["matches"] == 1


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        ("regex", "ERROR: disk 7$"),
        ("context", "ERROR: disk 7$"),
        ("fuzzy", "eror disc"),
        ("bm25", "error disk"),
    ],
)
async def test_colours_do_not_hide_what_is_looked_for(
    agent: Agent, tmp_path: Path, mode: str, pattern: str
) -> None:
    lines = [f"\x1b[32m{n}\x1b[0m INFO all is well" for n in range(500)]
    lines[300] = "\x1b[1;31mERR\x1b[0mOR: \x1b[4mdisk\x1b[0m 7"
    cache_id = await stored(agent, tmp_path, said("\n".join(lines)))

    shown = texts(await agent.call("proxy_search", cache_id=cache_id, pattern=pattern, mode=mode))[0]

    assert "ERROR: disk 7" in shown
    assert "\x1b" not in shown
