"""An SDK client searches real documents for exact codes, with the default embedder, strategy and weights."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import ROOT
from testkit.upstreams import configuration
from tests.real.knowledge import Message, told

# Long documents of one subject: the meaning of a short query is near to dozens of their chunks.
DOCUMENTS = (
    "guides/calls-exactly-once",
    "guides/many-tools",
    "guides/python-client",
    "reference/failed-calls",
)
# Each stands in one section, in a sentence that says nothing else of its subject.
CODES = {
    "ed25519": "Signatures are of the kind ed25519 here.",
    "OPM Form 630": "Absence is requested on OPM Form 630 in time.",
    "re.compile": "Patterns go through re.compile once.",
    "CVE-2031-4472": "The advisory CVE-2031-4472 applies.",
    "0x8007000E": "Windows reports 0x8007000E then.",
    "net.ipv4.tcp_fin_timeout": "Set net.ipv4.tcp_fin_timeout lower.",
    "v4.11.2-rc3": "This is so since v4.11.2-rc3 only.",
    "section 17.3.1": "See section 17.3.1 of the contract.",
    "ERR_QUIC_PROTOCOL": "Browsers show ERR_QUIC_PROTOCOL instead.",
    "error 1062": "MySQL answers with error 1062 there.",
    "getElementsByXPath": "Scripts call getElementsByXPath for it.",
    "xylotomy": "The word xylotomy has nothing to do with it.",
}
# Sections that can carry a sentence: a heading of the second level, then a paragraph of some length.
SECTION = re.compile(
    r"^## (?P<name>[^\n`\[]+)\n+(?P<first>[A-Z][^\n]{60,}(?:\n[^\n#|`-][^\n]*)*)\n", re.MULTILINE
)
SECONDS = 120
# Short sections share a chunk.
NOTES = """# Notes

## Alpha

Nothing to see.

## Beta

The kumquat is ripe.

Gamma
-----

The rambutan is not.
"""


def with_codes(directory: Path) -> dict[str, str]:
    """Copy the documents with the sentences in them; the header of the section that has each code."""
    directory.mkdir()
    left = dict(CODES)
    (directory / "notes.md").write_text(NOTES, encoding="utf-8")
    notes = f"{directory.name}/notes.md > Notes"
    headers = {"kumquat": f"{notes} > Beta", "rambutan": f"{notes} > Gamma"}
    for name in DOCUMENTS:
        source = ROOT / "docs" / f"{name}.md"
        text = source.read_text(encoding="utf-8")
        title = text.split("\n", 1)[0].removeprefix("# ")
        for section in list(SECTION.finditer(text))[:3]:
            code, sentence = left.popitem()
            text = text.replace(section["first"], f"{section['first']} {sentence}", 1)
            headers[code] = f"{directory.name}/{source.name} > {title} > {section['name']}"
        (directory / source.name).write_text(text, encoding="utf-8")
    assert not left
    return headers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, dict[str, str]]]:
    place = tmp_path_factory.mktemp("exact")
    headers = with_codes(place / "library")
    data = place / "gateway" / "data"
    told(place, "ingest", "library", "--data-dir", data, more={})
    config = configuration({"knowledge": {"builtin": "knowledge"}}, knowledge={"tokenBudget": 0})
    with running_gateway(config, place / "gateway", start_seconds=SECONDS) as gateway:
        gateway.wait_until_ready("knowledge")
        yield gateway, headers


@asynccontextmanager
async def search(gateway: GatewayProcess) -> AsyncIterator[Client]:
    async with Client(gateway.url) as client:
        yield client


async def ask(client: Client, tool: str, **arguments: object) -> Message:
    answer = (await client.call_tool(f"knowledge_{tool}", arguments)).structured_content
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize("wording", ["{}", "What is {} about?"])
@pytest.mark.parametrize("code", CODES)
async def test_an_exact_code_is_among_the_first_ten_of_a_default_search(
    library: tuple[GatewayProcess, dict[str, str]], code: str, wording: str
) -> None:
    async with search(library[0]) as client:
        found = await ask(client, "semantic_search", query=wording.format(code))
        assert found["strategy_used"] == "hybrid"
        assert found["total_found"] > 10
        ids = [one["chunk_id"] for one in found["results"]]
        chunks = await ask(client, "get_chunks", chunk_ids=ids)
    assert any(code in one["chunk_text"] for one in chunks["results"])


@pytest.mark.parametrize("wording", ["{}", "What is {} about?"])
@pytest.mark.parametrize("code", [*CODES, "kumquat", "rambutan"])
async def test_the_preview_shows_the_code_under_the_heading_of_its_section(
    library: tuple[GatewayProcess, dict[str, str]], code: str, wording: str
) -> None:
    gateway, headers = library
    async with search(gateway) as client:
        found = await ask(client, "semantic_search", query=wording.format(code), response_mode="preview")
    (shown,) = (one for one in found["results"] if code in one["chunk_snippet"])
    assert shown["context_header"] == headers[code]
