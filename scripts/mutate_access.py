"""Removes each refusal of the access rules in turn, and fails for each that no test notices.

Run as `python scripts/mutate_access.py [--only TEXT] [--list]`. A refusal is a `raise` or a `return False` in
`headgate.access`. Each mutant is a copy of the source on PYTHONPATH with one of them removed.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("headgate") / "access"
# Unit tests of a rule end a mutant in a second, so they come first.
TESTS = ("tests/access",)
# A mutant may make a test wait for something that never happens; that is noticed too.
MUTANT_SECONDS = 900.0


class Refusal(NamedTuple):
    """One statement that refuses, by its place in the source."""

    path: Path
    line: int
    end: int
    indent: int
    text: str
    replacement: str

    @property
    def place(self) -> str:
        return f"{self.path.name}:{self.line} {self.text}"


def refusals(source: Path) -> Iterator[Refusal]:
    """Every refusal of the modules of the access rules, in the order of the source."""
    for path in sorted((source / PACKAGE).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            replacement = _replacement(node)
            if replacement and isinstance(node, ast.stmt):
                first = text.splitlines()[node.lineno - 1].strip()
                end = node.end_lineno or node.lineno
                yield Refusal(path, node.lineno, end, node.col_offset, first, replacement)


def _replacement(node: ast.AST) -> str:
    if isinstance(node, ast.Raise):
        return "pass"
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) and node.value.value is False:
        return "return True"
    return ""


def mutate(refusal: Refusal, source: Path) -> None:
    """Write the module of the copy without that refusal."""
    path = source / PACKAGE / refusal.path.name
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[refusal.line - 1 : refusal.end] = [" " * refusal.indent + refusal.replacement]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_noticed(source: Path, tests: list[str]) -> bool:
    """Whether a test fails with the copy of the source."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=MUTANT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="refusals whose place contains this text")
    parser.add_argument("--list", action="store_true", help="name the refusals and end")
    parser.add_argument("--tests", nargs="*", default=list(TESTS), help="the tests that must notice")
    options = parser.parse_args()
    chosen = [refusal for refusal in refusals(ROOT / "src") if options.only in refusal.place]
    if options.list:
        print("\n".join(refusal.place for refusal in chosen))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if is_noticed(source, options.tests):
            print("a test fails without any mutation; mend that first", file=sys.stderr)
            return 2
        survivors = [refusal for refusal in chosen if not _judge(refusal, source, options.tests)]
    print(f"{len(chosen)} refusals removed in turn, {len(survivors)} noticed by no test")
    return 1 if survivors else 0


def _judge(refusal: Refusal, source: Path, tests: list[str]) -> bool:
    copy = source / PACKAGE / refusal.path.name
    whole = copy.read_text(encoding="utf-8")
    mutate(refusal, source)
    try:
        noticed = is_noticed(source, tests)
    finally:
        copy.write_text(whole, encoding="utf-8")
    print(f"{'noticed' if noticed else 'SURVIVED'}  {refusal.place}", flush=True)
    return noticed


if __name__ == "__main__":
    sys.exit(main())
