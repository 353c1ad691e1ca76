"""The pages are short, wrapped, plain, and their configurations can be used."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.config.loader import load
from headgate.config.settings import Flags
from tests.documentation.pages import DOCS, README, ROOT, WRITTEN, blocks, name, prose

MOST_WORDS = 2_500
MOST_README_LINES = 200
WIDTH = 100
BUILD_SECONDS = 120
# Crutches and metaphors that CONTRIBUTING.md rules out.
PRIVATE_VOICE = re.compile(
    r"\b(nobody|whoever|somebody|anybody knows|is said|is told|are told|the gate|the house)\b",
    re.IGNORECASE,
)
PAGES = pytest.mark.parametrize("page", WRITTEN, ids=name)


@PAGES
def test_a_page_is_read_in_ten_minutes(page: Path) -> None:
    assert len(page.read_text().split()) <= MOST_WORDS


@PAGES
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if line.strip() and not line.startswith("<!--")]
    assert lines[0].startswith("# ")
    assert re.match(r"[A-Z*`\[]", lines[1]), lines[1]


@PAGES
def test_prose_wraps_at_100_characters(page: Path) -> None:
    # An image or a link cannot be wrapped.
    long = [line for line in prose(page).splitlines() if len(line) > WIDTH and "](" not in line]
    assert long == []


@PAGES
def test_prose_is_plain(page: Path) -> None:
    assert PRIVATE_VOICE.findall(" ".join(prose(page).split())) == []


@PAGES
def test_json_blocks_are_valid_and_configurations_load(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(one for one in blocks(page) if one.language == "json"):
        value = json.loads(block.text)
        if isinstance(value, dict) and "mcpServers" in value:
            file = tmp_path / f"{number}.json"
            file.write_text(block.text)
            variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "value")
            load(Flags(config=file), {"HOME": str(tmp_path), **variables}, tmp_path, secrets=tmp_path)


def test_the_readme_is_decided_in_two_minutes() -> None:
    assert len(README.read_text().splitlines()) <= MOST_README_LINES


def test_every_figure_of_the_readme_is_one_that_was_measured() -> None:
    summary = (DOCS / "figures" / "index.md").read_text()
    bullets = re.search(r"\n- \*\*.*?\n\n", README.read_text(), re.DOTALL)
    assert bullets is not None
    for figure in ("2,999", "1,160,561", "1,489", "445,348", "45 MB", "36 µs", "3,015", "97"):
        assert figure in bullets[0]
        assert figure in summary
    # Rounded, so that a visitor can remember them.
    assert {".818", ".798", ".751"} <= set(re.findall(r"\.\d{3}", summary))
    assert {"82 %", "80 %", "75 %"} == set(re.findall(r"\d+ %", bullets[0]))
    ratio = re.search(r"(\d+)\.\dx less than FastMCP", summary)
    assert ratio is not None
    assert f"{ratio[1]} times less than FastMCP's proxy" in bullets[0]
    campaign = "\n".join(page.read_text() for page in (DOCS / "figures").glob("campaign*.md"))
    assert "kills 1000" in campaign
    assert "calls 49340" in campaign
    assert "in doubt 984" in campaign


def test_the_generated_pages_are_what_the_code_says() -> None:
    check: list[str | Path] = [sys.executable, ROOT / "scripts/make_reference.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


def test_every_endpoint_is_described() -> None:
    page = (DOCS / "reference" / "endpoints.md").read_text()
    for path in ("/mcp", "/sse", "/messages", "/health", "/ready", "/metrics", "/listing", "/"):
        assert f"`{path}`" in page


@pytest.mark.timeout(BUILD_SECONDS)
def test_the_site_builds_without_a_warning_and_can_be_searched_offline(tmp_path: Path) -> None:
    mkdocs: list[str | Path] = [
        Path(sys.executable).parent / "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        tmp_path,
    ]
    done = subprocess.run(mkdocs, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.js").exists()
    start = (tmp_path / "index.html").read_text()
    # Nothing is loaded from elsewhere.
    assert not re.findall(r'(?:src|<link[^>]+href)="https?://', start)
