"""The file of facts: written soon, seldom and whole, and never without end."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headgate.storage.state import StateFile
from tests.waiting import wait_until

WAIT_SECONDS = 5.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


async def holds(condition: Callable[[], bool]) -> None:
    """Look at the disk without holding up the loop."""
    await asyncio.to_thread(wait_until, condition, WAIT_SECONDS, "written")


def test_many_changes_in_a_row_are_written_once(path: Path) -> None:
    state = StateFile(path, pause_seconds=0.1)
    files: set[int] = set()

    def seen() -> bool:
        if path.exists():
            files.add(os.stat(path).st_ino)
        return StateFile(path).version("server") == "99"

    async def change() -> None:
        for number in range(100):
            # A write that is not put off would be one on the loop, which fails here.
            state.claim({f"name{number}": ("server", "tool")})
            state.remember_version("server", f"{number}")
        await holds(seen)

    asyncio.run(change())
    assert len(files) == 1
    assert StateFile(path).owner("name99") == ("server", "tool")


def test_a_change_after_a_write_is_written_too(path: Path) -> None:
    state = StateFile(path, pause_seconds=0.01)

    async def change() -> None:
        for version in ("1", "2", "3"):
            state.remember_version("server", version)
            await holds(partial(remembers, path, version))

    asyncio.run(change())


def remembers(path: Path, version: str) -> bool:
    return StateFile(path).version("server") == version


def test_what_is_still_to_be_written_is_written_at_the_end(path: Path) -> None:
    state = StateFile(path, pause_seconds=60.0)

    async def change() -> None:
        state.remember_version("server", "1")
        await state.flush()

    asyncio.run(change())
    assert StateFile(path).version("server") == "1"


def test_without_a_loop_a_change_is_written_at_once(path: Path) -> None:
    StateFile(path).remember_version("server", "1")
    assert StateFile(path).version("server") == "1"


def test_names_without_end_push_out_those_that_nobody_used_for_longest(path: Path) -> None:
    state = StateFile(path)
    state.claim({"forgotten": ("a", "b"), "used": ("a", "c")})
    for start in range(0, 30_000, 10_000):
        assert state.owner("used") == ("a", "c")
        state.claim({f"new{number}": ("x", "y") for number in range(start, start + 10_000)})
    again = StateFile(path)
    assert again.owner("forgotten") is None
    assert again.owner("new29999") == ("x", "y")
    assert again.owner("used") == ("a", "c")
    assert path.read_bytes().count(b'"new') < 20_000
