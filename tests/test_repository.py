"""The files that a contributor meets first: workflow, updates, hooks, names and versions."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headgate import __version__

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SECONDS = 60


def tool(*command: str) -> str:
    """What a program of the environment of the tests prints; raises CalledProcessError if it refuses."""
    program, *arguments = command
    path = Path(sys.executable).parent / program
    return subprocess.run(
        [path, *arguments], cwd=ROOT, check=True, timeout=SECONDS, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [("vendor.github-workflows", "workflows/*.yml"), ("vendor.dependabot", "dependabot.yml")],
)
def test_what_github_reads_is_valid(schema: str, pattern: str) -> None:
    files = [str(file) for file in (ROOT / ".github").glob(pattern)]
    assert files
    assert "ok" in tool("check-jsonschema", "--builtin-schema", schema, *files)


def test_the_hooks_run_what_make_check_runs() -> None:
    tool("pre-commit", "validate-config", ".pre-commit-config.yaml")
    hooks = set(re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text()))
    check = re.search(r"^check:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check is not None
    assert hooks == {line.strip().removeprefix("$(BIN)/") for line in check[1].splitlines()}


def test_the_workflow_tests_every_version_that_the_package_declares() -> None:
    declared = {
        name.rpartition(" :: ")[2]
        for name in PROJECT["project"]["classifiers"]
        if re.search(r"Python :: 3\.\d+$", name)
    }
    matrix = re.search(r"python: \[(.+)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert matrix is not None
    assert set(re.findall(r"3\.\d+", matrix[1])) == declared == {"3.11", "3.12", "3.13", "3.14"}


def test_the_version_has_its_section_in_the_changelog() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert "version" in PROJECT["project"]["dynamic"]


def texts() -> list[Path]:
    files = tool_output("git", "ls-files").splitlines()
    kinds = {".py", ".md", ".toml", ".json", ".in", ".yml", ""}
    # A decision record and the old names in the changelog are history.
    return [ROOT / name for name in files if Path(name).suffix in kinds and "/decisions/" not in name]


def tool_output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_every_extra_is_installed_by_the_name_of_the_distribution() -> None:
    """The name `headgate` on the package index is another project."""
    assert PROJECT["project"]["name"] == "headgate-mcp"
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in texts()
        if path.is_file()
        for found in re.findall(
            r"(?<![\w.-])headgate\[\w|pip install \"?headgate(?![\w-]|\.)", path.read_text(errors="replace")
        )
        if path != Path(__file__)
    ]
    assert wrong == []
