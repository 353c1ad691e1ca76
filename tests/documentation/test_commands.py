"""Every command that a page shows is run, page by page, in a clean home."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.gateway_process import HOST, clean_environment, free_port
from testkit.upstreams import accepts
from testkit.waiting import wait_until
from tests.documentation.pages import ROOT, WRITTEN, blocks, name

SECONDS = 90
# They run for minutes, or everything again; that the target exists is checked.
LONG = (
    "bench",
    "campaign",
    "conformance",
    "coverage",
    "huggingface",
    "lock",
    "parts",
    "pytest",
    "test",
    "quantize",
)
MORE = [ROOT / "CONTRIBUTING.md", ROOT / "RELEASING.md", ROOT / "examples" / "README.md"]


def commands(page: Path) -> list[str]:
    """What the page's bash blocks run: a block as a whole, or line by line where one starts something."""
    found: list[str] = []
    for block in blocks(page):
        if block.language == "bash":
            text = block.text.replace("\\\n", " ")
            lines = [line.strip() for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
            starts = any(re.match(r"make |headgate serve", line) for line in lines)
            found += lines if starts else [text]
    return found


class Shell:
    """Runs the commands of one page: a home, a clone and a port of their own."""

    def __init__(self, home: Path, port: int) -> None:
        self._directory = home / "clone"
        self._port = port
        self._gateway: subprocess.Popen[bytes] | None = None
        # Examples are copied, for a command may write beside them.
        shutil.copytree(ROOT / "examples", self._directory / "examples")
        for entry in ("Makefile", "bench", "docs", "tests"):
            (self._directory / entry).symlink_to(ROOT / entry)
        self._environment = clean_environment() | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HEADGATE_PORT": str(port),
        }

    def run(self, command: str) -> None:
        """Run one command; raises AssertionError if it fails."""
        command = command.replace(":8000", f":{self._port}")
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            self._make(words)
        elif words[:2] == ["headgate", "serve"] and "stdio" not in words:
            self._serve(command.partition(" #")[0].strip().removesuffix("&"))
        else:
            self._finish(command)

    def _make(self, words: list[str]) -> None:
        if words[1:2] == ["run"]:
            self._serve("headgate serve --config examples/headgate.json --transport http")
        elif len(words) == 1 or words[1] in LONG:
            self._finish(f"make --dry-run {' '.join(map(shlex.quote, words[1:]))}", directory=ROOT)
        else:
            self._finish(" ".join(map(shlex.quote, words)), directory=ROOT)

    def _serve(self, command: str) -> None:
        if self._gateway is not None:
            self.close()
        self._gateway = subprocess.Popen(
            f"exec {command}",
            shell=True,
            cwd=self._directory,
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        wait_until(lambda: accepts(self._port), SECONDS, f"{command} listens")

    def _finish(self, command: str, directory: Path | None = None) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=directory or self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def close(self) -> None:
        """End the gateway that the page started."""
        if self._gateway is not None:
            self._gateway.send_signal(signal.SIGTERM)
            self._gateway.wait(SECONDS)
            self._gateway = None


@contextmanager
def shell(home: Path) -> Iterator[Shell]:
    opened = Shell(home, free_port())
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page for page in (*WRITTEN, *MORE) if commands(page)], ids=name)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    with shell(tmp_path) as opened:
        for command in commands(page):
            opened.run(command)


def test_the_pages_show_commands() -> None:
    assert sum(len(commands(page)) for page in WRITTEN) >= 20


def test_a_gateway_of_a_page_does_not_outlive_it(tmp_path: Path) -> None:
    with shell(tmp_path) as opened:
        opened.run("make run")
        port = opened._port  # noqa: SLF001
        assert accepts(port)
    assert not accepts(port), HOST
