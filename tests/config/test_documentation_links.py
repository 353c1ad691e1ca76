"""The pages lead to each other, and name what there is."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.catalog import own_tools
from headgate.catalog.public_names import RESERVED
from headgate.catalog.tool_pool import weight
from headgate.delivery.transactions import tool_definitions as transaction_tools
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.results import tools as result_tools

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
REFERENCE = DOCS / "reference"
TOOLS = "".join(page.read_text() for page in sorted((REFERENCE / "tools").glob("*.md")))


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link can lead to on the page, spelt as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(lost(page)) == []


@pytest.mark.parametrize("name", ["architecture.md", "internals.md"])
def test_every_module_that_is_named_exists(name: str) -> None:
    page = (DOCS / "how-it-works" / name).read_text()
    modules = re.findall(r"`([a-z_/0-9]+/[a-z_0-9]+\.py)`", page)
    assert len(modules) > 20
    assert [module for module in modules if not (ROOT / "src" / "headgate" / module).exists()] == []


def test_every_decision_is_in_the_map() -> None:
    index = (DOCS / "decisions" / "index.md").read_text()
    for decision in sorted((DOCS / "decisions").glob("0*.md")):
        assert f"| [{decision.name[:4]}]({decision.name}) | " in index


def test_every_extra_is_described_with_how_to_install_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (DOCS / "get-started" / "install.md").read_text()
    for extra in extras:
        assert f"headgate-mcp[{extra}]" in page


def arguments(definition: bytes) -> list[tuple[str, str]]:
    tool: dict[str, Any] = msgspec.json.decode(definition)
    return [(tool["name"], argument) for argument in tool["inputSchema"]["properties"]]


@pytest.mark.parametrize(
    ("tool", "argument"),
    [
        *arguments(own_tools.retrieve_definition([])),
        *arguments(own_tools.CALL_DEFINITION),
        *arguments(own_tools.EXPAND_DEFINITION),
        *(named for definition in DEFINITIONS for named in arguments(msgspec.json.encode(definition))),
    ],
)
def test_every_argument_of_the_own_tools_is_described(tool: str, argument: str) -> None:
    section = TOOLS.split(f"\n### {tool}\n")[1].split("\n## ")[0].split("\n### ")[0]
    assert re.search(rf"^\| `{argument}` \| .+ \| .+ \|$", section, re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "definitions"),
    [("results", result_tools.DEFINITIONS), ("transactions", transaction_tools.DEFINITIONS)],
)
def test_every_argument_of_the_tools_for_results_and_transactions_is_described(
    page: str, definitions: Mapping[str, bytes]
) -> None:
    tools = REFERENCE / "tools"
    text = (tools / f"{page}.md").read_text() + (tools / "proxy-query.md").read_text()
    for definition in definitions.values():
        for tool, argument in arguments(definition):
            assert f"# {tool}\n" in text
            assert re.search(rf"^\| .*`{argument}`.* \| .* \| .+ \|$", text, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_every_name_that_the_gateway_keeps_for_itself_is_told(name: str) -> None:
    names = (REFERENCE / "names.md").read_text()
    assert f"`{name}`" in names.split("\n### Reserved names\n")[1].split("\n### ")[0]


def test_the_weights_of_the_page_are_those_of_the_pool() -> None:
    page = (DOCS / "guides" / "many-tools.md").read_text()
    rows = re.findall(r"^\| (0\.\d) \| (just now|\d+ minutes) \| (0\.\d\d) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for score, age, told in rows:
        minutes = 0 if age == "just now" else int(age.split()[0])
        assert f"{weight(float(score), 60.0 * minutes):.2f}" == told


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip("|").split("|")]


def test_the_figures_of_search_in_the_readme_are_those_of_the_measured_table() -> None:
    page = (DOCS / "figures" / "tool-retrieval.md").read_text()
    table = page.split("<!-- figures: R@5 -->\n")[1].split("<!-- end -->")[0]
    head, _, *lines = table.splitlines()
    measured = {
        row[0].split(" (")[0]: dict(zip(cells(head), row, strict=True)) for row in map(cells, lines) if row
    }
    told = re.search(
        r"for (\d+) % of the requests.*?(\d+) % with the offline.*?finds (\d+) %",
        README.read_text(),
        re.DOTALL,
    )
    assert told is not None
    mean = measured["macro mean"]
    assert told.groups() == tuple(
        f"{100 * float(mean[engine]):.0f}" for engine in ("lexical", "hybrid", "fielded BM25")
    )
