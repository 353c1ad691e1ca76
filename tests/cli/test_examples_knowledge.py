"""The example of the documents does what its README says: the commands are taken from there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from headgate.config.loader import load
from headgate.config.settings import Flags
from tests.cli.test_knowledge import run, told

ROOT = Path(__file__).parents[2]
README = (ROOT / "examples" / "knowledge" / "README.md").read_text()


def commands(name: str) -> list[list[str]]:
    """The arguments of every `headgate knowledge` command of this name in the README, in their order."""
    return [shlex.split(given) for given in re.findall(rf"`headgate knowledge ({name} [^`]+)`", README)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README is followed: a home of its own, with the examples as they are."""
    place = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", place / "examples")
    for given in commands("ingest"):
        told(place, *given)
    return place


def test_everything_of_the_example_is_ingested(place: Path) -> None:
    assert "sources        5" in told(place, "stats")
    [again] = commands("ingest")
    assert "files   5 unchanged" in told(place, *again)


def test_the_question_of_the_readme_finds_the_page_that_answers_it(place: Path) -> None:
    [asked] = commands("search")
    first = told(place, *asked).splitlines()[1]
    assert first.split()[0] == "1"
    assert "handbook/on-call.md" in first


def test_the_vendor_of_the_readme_is_found_by_its_alias(place: Path) -> None:
    [asked] = commands("vendor")
    answer = told(place, *asked)
    assert answer.startswith("Larkfield Hosting Ltd (id ")
    assert "Priya Raman WORKS_FOR Larkfield Hosting Ltd" in answer


def test_a_name_that_two_vendors_have_is_listed_and_not_guessed(place: Path) -> None:
    ended = run(place, "vendor", "QUARRY")
    assert ended.exit_code == 2
    assert "'Quarry Data GmbH' (VENDOR, id " in ended.stderr
    assert "'Quarry Stone Works' (VENDOR, id " in ended.stderr


def test_the_configuration_of_the_readme_serves_the_documents_and_nothing_else(tmp_path: Path) -> None:
    [file] = re.findall(r"`headgate serve --config (\S+) --transport http`", README)
    settings = load(Flags(config=ROOT / file), {"HOME": str(tmp_path)}, tmp_path)
    assert [(server.name, server.builtin) for server in settings.servers] == [("knowledge", "knowledge")]
    assert settings.warnings == ()
