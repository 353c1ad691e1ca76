"""The npm suite: which scenarios a revision has, running them, and reading what they found."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testkit.parts import ROOT, Parts

# A whole set takes about ten seconds; a hanging server costs each scenario its own limit.
_RUN_SECONDS: Final = 400.0
_SCENARIO_MILLISECONDS: Final = 20_000
_STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the suite looked at."""

    id: str
    name: str
    status: str
    message: str = ""


# By scenario.
Results = dict[str, tuple[Check, ...]]


@dataclass(frozen=True, slots=True)
class Scenarios:
    """What a revision asks of one side."""

    required: tuple[str, ...]
    unscored: tuple[str, ...]


async def scenarios(revision: str, side: str) -> Scenarios:
    """What the revision asks of a "server" or a "client", without what is out of scope here."""
    listing = await _run(["list", "--requirements", revision])
    required: list[str] = []
    unscored: list[str] = []
    current: list[str] = []
    for line in listing.splitlines():
        if found := re.match(r"(Server|Client) scenarios", line):
            current = required if found[1].lower() == side else []
        elif line.startswith("Run and reported"):
            current = unscored
        elif found := re.match(rf"\s*- (\S+)(?: \[{side}\])?$", line):
            current.append(found[1])
    return Scenarios(tuple(_in_scope(required)), tuple(_in_scope(unscored)))


def _in_scope(names: Iterable[str]) -> list[str]:
    # Tasks are an extension that the SDK does not have; authorization comes with accounts.
    return [name for name in names if not name.startswith(("tasks-", "auth/"))]


async def run_server(url: str, revision: str, scenario: str | None, directory: Path) -> Results:
    """Run the set of a revision, or one scenario of it, against a server."""
    chosen = ["--scenario", scenario, "--spec-version", revision, "--force"] if scenario else []
    command = ["server", "--url", url, *(chosen or ["--requirements", revision])]
    return await _collect(command, directory, "server-")


async def run_client(program: list[str], revision: str, scenario: str, directory: Path) -> Results:
    """Run one scenario against a client, which is started with the address as its last argument."""
    command = ["client", "--command", shlex.join(program), "--scenario", scenario]
    return await _collect([*command, "--spec-version", revision, "--force"], directory, "")


async def _collect(command: list[str], directory: Path, prefix: str) -> Results:
    directory.mkdir(parents=True, exist_ok=True)
    said = await _run([*command, "--timeout", str(_SCENARIO_MILLISECONDS), "--output-dir", str(directory)])
    (directory / "suite.txt").write_text(said)
    found: Results = {}
    for one in sorted(path for path in directory.iterdir() if path.is_dir()):
        scenario = _STAMP.sub("", one.name).removeprefix(prefix)
        if _in_scope([scenario]):
            found[scenario] = _checks(one / "checks.json", scenario, said)
    if not found:
        raise RuntimeError(f"the suite ran nothing:\n{said[-3000:]}")
    return found


def _checks(file: Path, scenario: str, said: str) -> tuple[Check, ...]:
    if not file.exists():
        message = re.search(rf"Failed to run scenario {re.escape(scenario)}: ?(.*)", said)
        return (Check("scenario-ran", scenario, "FAILURE", message[1] if message else "it did not end"),)
    return tuple(
        Check(one["id"], one["name"], one["status"], one.get("errorMessage") or "")
        for one in json.loads(file.read_text())
    )


async def _run(arguments: list[str]) -> str:
    parts = Parts()
    child = await asyncio.create_subprocess_exec(
        str(parts.node24), str(parts.npm_bin("conformance")), *arguments,
        cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_RUN_SECONDS):
            said, _ = await child.communicate()
    finally:
        # Also what a client under test may have left behind: it is in the same group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    return said.decode(errors="replace")
