"""The file of facts: written soon, seldom and whole, and never without end."""

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headgate.catalog.capabilities import ServerDeclaration
from headgate.storage.files.state_file import StateFile
from testkit.waiting import wait_until

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
        written = StateFile(path).version("server") == "99"
        if path.exists():
            files.add(os.stat(path).st_ino)
        return written

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
    for start in range(0, 60_000, 10_000):
        assert state.owner("used") == ("a", "c")
        state.claim({f"new{number}": ("x", "y") for number in range(start, start + 10_000)})
    again = StateFile(path)
    assert again.owner("forgotten") is None
    assert again.owner("new59999") == ("x", "y")
    assert again.owner("used") == ("a", "c")
    assert path.read_bytes().count(b'"new') < 50_000


ABILITY = ServerDeclaration("2025-11-25", '{"prompts":{}}', "be kind \u00e9")


def test_what_a_server_can_do_is_remembered(path: Path) -> None:
    state = StateFile(path)
    assert state.ability("server") is None
    state.remember_ability("server", ABILITY)
    assert StateFile(path).ability("server") == ABILITY
    assert StateFile(path).ability("other") is None


def test_a_server_that_says_the_same_again_costs_no_write(path: Path) -> None:
    state = StateFile(path)
    state.remember_ability("server", ABILITY)
    written = os.stat(path).st_ino
    state.remember_ability(
        "server", ServerDeclaration(ABILITY.version, ABILITY.capabilities, ABILITY.instructions)
    )
    assert os.stat(path).st_ino == written
    state.remember_ability("server", ServerDeclaration("2026-07-28"))
    assert os.stat(path).st_ino != written


def test_a_file_from_before_there_were_abilities_is_read(path: Path) -> None:
    path.write_text('{"names":{"a_b":["a","b"]},"versions":{"a":"2025-11-25"}}')
    state = StateFile(path)
    assert (state.owner("a_b"), state.version("a"), state.ability("a")) == (("a", "b"), "2025-11-25", None)


def test_what_clients_asked_for_is_remembered_until_they_want_nothing(path: Path) -> None:
    state = StateFile(path)
    state.save_preferences("a", "error", ["x://1", "x://2"])
    state.save_preferences("b", "", ["x://1"])
    state.save_preferences("b", "", [])

    again = StateFile(path)

    assert again.preferences("a") == ("error", ["x://1", "x://2"])
    assert again.preferences("b") is None


def test_clients_that_never_come_back_are_forgotten_in_the_end(path: Path) -> None:
    state = StateFile(path)
    state.save_preferences("first", "error", [])
    state.save_preferences("second", "error", [])
    state.save_preferences("first", "info", [])
    for number in range(999):
        state.save_preferences(str(number), "error", [])

    assert state.preferences("first") == ("info", [])
    assert state.preferences("second") is None


def test_what_clients_were_shown_and_what_they_call_most_is_remembered(path: Path) -> None:
    state = StateFile(path)
    assert state.listing_digest("full handshake") is None
    assert state.favourites() == (0.0, [])
    state.remember_listing("full handshake", "abc")
    state.remember_listing("slim stateless", "def")
    state.remember_listing("full handshake", "xyz")
    state.remember_favourites(1234.5, [("bank", "pay"), ("shop", "b\u00fcy")])
    again = StateFile(path)
    assert again.listing_digest("full handshake") == "xyz"
    assert again.listing_digest("slim stateless") == "def"
    assert again.listing_digest("slim handshake") is None
    assert again.favourites() == (1234.5, [("bank", "pay"), ("shop", "b\u00fcy")])


def test_the_same_listing_again_costs_no_write(path: Path) -> None:
    state = StateFile(path)
    state.remember_listing("full", "abc")
    written = os.stat(path).st_ino
    state.remember_listing("full", "abc")
    assert os.stat(path).st_ino == written
    state.remember_listing("full", "abd")
    assert os.stat(path).st_ino != written


def test_listings_of_odd_clients_push_out_those_that_changed_longest_ago(path: Path) -> None:
    state = StateFile(path)
    for number in range(1000):
        state.remember_listing(f"listing {number}", "abc")
    again = StateFile(path)
    assert again.listing_digest("listing 0") is None
    assert again.listing_digest("listing 999") == "abc"
    assert path.read_bytes().count(b'"listing ') <= 256


def test_a_file_from_before_there_were_listings_is_read(path: Path) -> None:
    path.write_text('{"names":{"a_b":["a","b"]},"versions":{}}')
    state = StateFile(path)
    assert (state.owner("a_b"), state.listing_digest("full"), state.favourites()) == (
        ("a", "b"),
        None,
        (0.0, []),
    )


@pytest.mark.parametrize(
    "content",
    ['{"listings":[]}', '{"favourites":[1,[["a"]]]}', '{"favourites":{}}', '{"listings":{"a":1}}', "[]"],
)
def test_a_file_that_somebody_spoilt_costs_what_it_remembered_and_no_start(path: Path, content: str) -> None:
    path.write_text(content)
    state = StateFile(path)
    assert (state.listing_digest("a"), state.favourites()) == (None, (0.0, []))
    state.remember_listing("a", "abc")
    assert StateFile(path).listing_digest("a") == "abc"


def test_nothing_is_written_after_the_end(path: Path) -> None:
    """A timer that fires when the gateway has ended finds no thread to write in."""

    async def live() -> None:
        state = StateFile(path, pause_seconds=0.01)
        state.remember_listing("full", "a")
        await state.flush()
        path.unlink()
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, later.set)
        await later.wait()
        assert not path.exists()

    asyncio.run(live())


def test_what_clients_subscribed_to_is_bounded_in_bytes_and_the_largest_go_first(path: Path) -> None:
    state = StateFile(path)
    state.save_preferences("modest", "info", ["bank:/1"])
    for number in range(40):
        # Escaped, a character takes six bytes in the file.
        state.save_preferences(f"greedy{number}", "", ["\x01" * 80_000])
    assert path.stat().st_size < 9 * 1024 * 1024
    again = StateFile(path)
    assert again.preferences("modest") == ("info", ["bank:/1"])
    assert sum(again.preferences(f"greedy{number}") is not None for number in range(40)) > 10


def test_a_file_that_is_too_large_is_cut_when_it_is_read(path: Path) -> None:
    standings = {f"session{number}": ["", ["x" * 1_000_000]] for number in range(20)}
    path.write_text(json.dumps({"standings": standings}))
    state = StateFile(path)
    state.remember_version("server", "1")
    assert path.stat().st_size < 9 * 1024 * 1024


def test_two_gateways_that_share_the_file_keep_what_each_other_wrote(path: Path) -> None:
    first, second = StateFile(path), StateFile(path)
    first.claim({"a_x": ("a", "x")})
    second.claim({"b_x": ("b", "x")})
    first.save_preferences("session of a", "info", [])
    second.remember_version("b", "2025-11-25")
    first.remember_version("a", "2025-06-18")
    read = StateFile(path)
    assert (read.owner("a_x"), read.owner("b_x")) == (("a", "x"), ("b", "x"))
    assert (read.version("a"), read.version("b")) == ("2025-06-18", "2025-11-25")
    assert read.preferences("session of a") == ("info", [])


def test_changes_of_another_gateway_are_not_undone_and_what_was_dropped_stays_away(
    path: Path,
) -> None:
    first = StateFile(path)
    first.claim({"x": ("a", "x")})
    first.remember_version("b", "2025-06-18")
    first.save_preferences("session", "info", [])
    second = StateFile(path)
    second.remember_version("b", "2025-11-25")
    first.save_preferences("session", "", [])
    second.claim({"y": ("b", "y")})
    read = StateFile(path)
    assert read.version("b") == "2025-11-25"
    assert read.preferences("session") is None
    assert (read.owner("x"), read.owner("y")) == (("a", "x"), ("b", "y"))


@pytest.mark.parametrize("spoil", [Path.unlink, partial(Path.write_text, data="{")], ids=["gone", "broken"])
def test_a_file_that_is_lost_under_a_gateway_is_written_whole(
    path: Path, spoil: Callable[[Path], object]
) -> None:
    state = StateFile(path)
    state.claim({"a_x": ("a", "x")})
    spoil(path)
    state.remember_version("a", "2025-11-25")
    read = StateFile(path)
    assert (read.owner("a_x"), read.version("a")) == (("a", "x"), "2025-11-25")
