"""The pages of the documents say what the code says: sentences, codes, files, shares."""

import re
from pathlib import Path

import msgspec
import pytest

from headgate.domain.errors import KnowledgeError, StoreUnavailable
from headgate.knowledge.errors import EntityMatch, QueryTooLong, VendorAmbiguous, VendorNotFound
from headgate.knowledge.options import ScoreBoosts
from headgate.knowledge.readers.format_registry import is_known
from headgate.knowledge.stores.postgres.vector_index import MOST_COMPARED
from headgate.knowledge.stores.sqlite.vector_index import SHORTLIST
from headgate.knowledge.tools.response_modes import RESULT_FIELDS, TOKENS_PER_RESULT, ResponseMode
from headgate.search.rank_fusion import ReciprocalRankFusion

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
INGESTION = (GUIDES / "documents.md").read_text()
SEARCH = (GUIDES / "documents-search.md").read_text()
OPERATION = (GUIDES / "documents-operations.md").read_text()
REFUSALS = (GUIDES / "documents-errors.md").read_text()
RANKING = (ROOT / "docs" / "how-it-works" / "knowledge.md").read_text()
SOURCES = [file.read_text() for file in (ROOT / "src" / "headgate" / "knowledge").rglob("*.py")]


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]


@pytest.mark.parametrize(
    "error",
    [
        QueryTooLong(500),
        VendorNotFound("X", []),
        VendorAmbiguous(
            "quarry",
            [
                EntityMatch(2, "Quarry Data GmbH", "VENDOR", "V-02", ("Quarry Data", "Quarry")),
                EntityMatch(4, "Quarry Stone Works", "VENDOR", "V-04", ("Quarry",)),
            ],
        ),
        StoreUnavailable(),
    ],
    ids=lambda error: str(error.code),
)
def test_every_sentence_that_is_a_contract_is_told_with_its_code(error: KnowledgeError) -> None:
    assert f"| `{error.code}` | {error.number} | `{error.sentence}`" in section(REFUSALS, "Errors")


def test_the_codes_of_all_warnings_are_told() -> None:
    codes = {code for text in SOURCES for code in re.findall(r'\bcode="([A-Z_]+)"', text)}
    assert codes == set(re.findall(r"^\| `([A-Z_]+)` \|", section(REFUSALS, "Warnings"), re.MULTILINE))


def test_the_files_that_are_named_are_read() -> None:
    table = section(INGESTION, "Formats").split("\n\n")[0]
    named = re.findall(r"`(\.[a-z]+)`", table)
    assert len(named) > 15
    assert [extension for extension in named if not is_known(extension)] == []


def test_the_shares_of_the_boosts_are_the_usual_ones() -> None:
    rows = re.findall(r"^\| (\w+) \| (0\.\d\d) \|", section(RANKING, "Boosts"), re.MULTILINE)
    assert {name: float(share) for name, share in rows} == msgspec.structs.asdict(ScoreBoosts())


def test_the_worked_example_adds_up() -> None:
    fusion = ReciprocalRankFusion()
    fused = fusion.contribution(fusion.weights.vector, 1) + fusion.contribution(fusion.weights.bm25, 1)
    example = " ".join(RANKING.split())
    assert f"0.5/61 + 0.5/61 = 0.008197 + 0.008197 = {fused:.6f}" in example
    recency = 0.010685
    assert f"{fused:.6f} x 1.0907 = {fused * (1 + ScoreBoosts().topic + recency):.6f}" in example
    second = fusion.contribution(fusion.weights.vector, 4) + fusion.contribution(fusion.weights.bm25, 2)
    assert f"0.5/64 + 0.5/62 = {second:.6f}" in example


@pytest.mark.parametrize(
    "mode", [ResponseMode.IDS_ONLY, ResponseMode.METADATA, ResponseMode.PREVIEW, ResponseMode.FULL]
)
def test_each_mode_is_told_with_its_fields_and_its_price(mode: ResponseMode) -> None:
    [fields, price] = re.findall(rf"^\| `{mode}` \| (.+) \| ([\d,]+) \|$", SEARCH, re.MULTILINE)[0]
    assert int(price.replace(",", "")) == TOKENS_PER_RESULT[mode]
    named = set(re.findall(r"[a-z0-9]+(?:_[a-z]+)+|rank", fields))
    assert named <= set(RESULT_FIELDS[mode])
    if not fields.startswith("+"):
        assert named == set(RESULT_FIELDS[mode])


def test_the_page_says_from_how_many_vectors_on_one_may_be_missed() -> None:
    assert f"one by one up to {MOST_COMPARED:,}, then HNSW" in OPERATION
    beyond = f"Beyond {SHORTLIST:,} vectors SQLite and beyond {MOST_COMPARED:,} PostgreSQL"
    assert beyond in " ".join(OPERATION.split())
