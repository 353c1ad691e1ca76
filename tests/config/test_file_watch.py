"""An edit of the file takes effect while the gateway runs, and a broken one does no harm."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from headgate.config.file_watch import servers_to_run, watch_settings
from headgate.config.settings import Flags, Settings
from tests.config.sandbox import ConfigSandbox

# Far more than one look takes, and only waited for when something is wrong.
BOUND_SECONDS = 10


class Watch:
    """A running watcher whose sleep lasts until the test asks for the next look."""

    def __init__(self) -> None:
        self._asleep = asyncio.Event()
        self._wake = asyncio.Event()
        self._seen: list[Settings] = []

    async def run(self, sandbox: ConfigSandbox, flags: Flags, current: Settings) -> None:
        """Collect what the watcher yields."""
        found = watch_settings(lambda: sandbox.load(flags), current, 1.0, sleep=self._sleep)
        async with aclosing(found):
            async for settings in found:
                self._seen.append(settings)

    async def _sleep(self, _seconds: float) -> None:
        self._asleep.set()
        await self._wake.wait()
        self._wake.clear()

    async def looks(self, count: int = 2) -> list[Settings]:
        """Return what so many looks bring; after two an edit has settled."""
        self._seen.clear()
        async with asyncio.timeout(BOUND_SECONDS):
            for _ in range(count):
                await self._asleep.wait()
                self._asleep.clear()
                self._wake.set()
                await self._asleep.wait()
        return list(self._seen)


@asynccontextmanager
async def watching(sandbox: ConfigSandbox, flags: Flags | None = None) -> AsyncIterator[Watch]:
    """Watch what is written in `place` now, from a first look that found nothing new."""
    flags = flags or Flags()
    watch = Watch()
    current = await asyncio.to_thread(sandbox.load, flags)
    running = asyncio.create_task(watch.run(sandbox, flags, current))
    try:
        yield watch
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])


def servers(*names: str) -> dict[str, object]:
    return {"mcpServers": {name: {"builtin": "example"} for name in names}}


def named(found: list[Settings]) -> list[list[str]]:
    return [[server.name for server in settings.servers] for settings in found]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.name == "headgate.config"]


async def test_an_edit_yields_the_new_settings_once(sandbox: ConfigSandbox) -> None:
    sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        assert await watch.looks() == []
        sandbox.write(servers("a", "b"))
        assert named(await watch.looks(5)) == [["a", "b"]]


async def test_an_edit_before_the_first_look_is_not_missed(sandbox: ConfigSandbox) -> None:
    sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        sandbox.write(servers("b"))
        assert named(await watch.looks()) == [["b"]]


async def test_a_touch_or_a_comment_is_not_a_change(sandbox: ConfigSandbox) -> None:
    path = sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        os.utime(path, ns=(1, 1))
        assert await watch.looks(3) == []
        path.write_text(f"// a comment\n{path.read_text()}")
        assert await watch.looks(3) == []


async def test_a_second_edit_that_the_clock_of_the_file_system_cannot_tell_is_seen(
    sandbox: ConfigSandbox,
) -> None:
    path = sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        await watch.looks()
        sandbox.write(servers("b"))
        before = path.stat()
        assert named(await watch.looks(1)) == [["b"]]
        with path.open("r+b") as file:
            file.write(path.read_bytes().replace(b'"b"', b'"c"'))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert named(await watch.looks(1)) == [["c"]]


@pytest.mark.parametrize("flags", [Flags(), Flags(config=Path("headgate.json"))])
async def test_a_broken_edit_is_told_once_and_the_old_stays(
    sandbox: ConfigSandbox, caplog: pytest.LogCaptureFixture, flags: Flags
) -> None:
    sandbox.write(servers("a"))
    async with watching(sandbox, flags) as watch:
        await watch.looks()
        sandbox.write('{"mcpServers": {')
        assert await watch.looks(5) == []
        (told,) = errors(caplog)
        assert "the configuration in force stays" in told
        assert "line 1" in told
        assert "\n" not in told
        sandbox.write(servers("a", "b"))
        assert named(await watch.looks()) == [["a", "b"]]
        assert errors(caplog) == [told]


async def test_a_file_that_is_half_written_at_one_look_is_not_worth_a_word(
    sandbox: ConfigSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        await watch.looks()
        sandbox.write('{"mcpSer')
        assert await watch.looks(1) == []
        sandbox.write(servers("b"))
        assert named(await watch.looks()) == [["b"]]
        assert errors(caplog) == []


@pytest.mark.parametrize("flags", [Flags(), Flags(config=Path("headgate.json"))])
async def test_a_file_that_is_deleted_and_made_again_is_followed(
    sandbox: ConfigSandbox, caplog: pytest.LogCaptureFixture, flags: Flags
) -> None:
    path = sandbox.write(servers("a"))
    async with watching(sandbox, flags) as watch:
        await watch.looks()
        path.unlink()
        assert await watch.looks(4) == []
        (told,) = errors(caplog)
        assert f"{path} is gone" in told
        sandbox.write(servers("b"))
        assert named(await watch.looks()) == [["b"]]


async def test_a_file_that_is_replaced_by_renaming_is_followed(sandbox: ConfigSandbox) -> None:
    path = sandbox.write(servers("a"))
    async with watching(sandbox) as watch:
        await watch.looks()
        for name in ("b", "c"):
            sandbox.write(servers(name), "new.tmp").rename(path)
            assert named(await watch.looks()) == [[name]]


async def test_a_link_that_is_pointed_elsewhere_is_followed(sandbox: ConfigSandbox) -> None:
    first, second = sandbox.write(servers("a"), "1.json"), sandbox.write(servers("b"), "2.json")
    link = sandbox.cwd / "headgate.json"
    link.symlink_to(first)
    async with watching(sandbox) as watch:
        await watch.looks()
        (sandbox.cwd / "link.tmp").symlink_to(second)
        (sandbox.cwd / "link.tmp").rename(link)
        assert named(await watch.looks()) == [["b"]]


async def test_a_variable_that_is_added_beside_the_file_enables_its_server(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"command": "${PROGRAM}"}}})
    async with watching(sandbox) as watch:
        await watch.looks()
        (sandbox.cwd / ".env").write_text("PROGRAM=x\n")
        (settings,) = await watch.looks()
        assert settings.servers[0].enabled
        assert settings.warnings == ()


async def test_started_without_a_file_it_waits_for_one(
    sandbox: ConfigSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(sandbox) as watch:
        assert await watch.looks(3) == []
        sandbox.write("{")
        assert await watch.looks(3) == []
        assert len(errors(caplog)) == 1
        sandbox.write(servers("a"))
        assert named(await watch.looks()) == [["a"]]
        sandbox.write(servers("b"))
        assert named(await watch.looks()) == [["b"]]


async def test_another_file_that_would_come_first_needs_a_restart(
    sandbox: ConfigSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.write(servers("a"), "mcp.json")
    async with watching(sandbox) as watch:
        await watch.looks()
        sandbox.write(servers("b"), "headgate.json")
        sandbox.write(servers("c"), "mcp.json")
        assert await watch.looks(3) == []
        (told,) = errors(caplog)
        assert "restart" in told
    assert caplog.records[0].levelno == logging.ERROR


WRONG = {"args": ["no", "command"]}


def running(
    sandbox: ConfigSandbox, before: str, after: dict[str, object], *, prefix: bool = True
) -> list[str]:
    """The commands of what runs after an edit of servers that are called by the letters of `before`."""
    sandbox.write({"mcpServers": {name: {"command": f"old-{name}"} for name in before}})
    old = sandbox.load()
    sandbox.write({"mcpServers": after})
    return [server.command for server in servers_to_run(sandbox.load(), old.servers, prefix=prefix)]


@pytest.mark.parametrize("broken", "abc")
def test_a_server_whose_new_entry_is_wrong_runs_on_where_it_was(sandbox: ConfigSandbox, broken: str) -> None:
    after: dict[str, object] = {name: {"command": f"new-{name}"} for name in "abcd"}
    after[broken] = WRONG
    expected = [f"old-{name}" if name == broken else f"new-{name}" for name in "abcd"]
    assert running(sandbox, "abc", after) == expected


def test_wrong_entries_side_by_side_keep_their_order(sandbox: ConfigSandbox) -> None:
    after: dict[str, object] = {"x": {"command": "new-x"}, "c": WRONG, "b": WRONG, "a": {"command": "new-a"}}
    assert running(sandbox, "abc", after) == ["new-x", "new-a", "old-b", "old-c"]


def test_what_was_removed_or_never_ran_is_not_kept(sandbox: ConfigSandbox) -> None:
    assert running(sandbox, "ab", {"a": {"command": "new-a"}, "new": WRONG}) == ["new-a"]
    sandbox.write({"mcpServers": {"off": {"command": "x", "enabled": False}}})
    old = sandbox.load()
    sandbox.write({"mcpServers": {"off": WRONG}})
    assert servers_to_run(sandbox.load(), old.servers, prefix=True) == ()


def test_what_is_kept_is_kept_through_further_edits(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"command": "old-a"}}})
    now = sandbox.load().servers
    for extra in ("b", "c"):
        sandbox.write({"mcpServers": {"a": WRONG, extra: {"command": extra}}})
        now = servers_to_run(sandbox.load(), now, prefix=True)
        assert [server.command for server in now] == ["old-a", extra]
    sandbox.write({"mcpServers": {"a": {"command": "mended"}}})
    assert [server.command for server in servers_to_run(sandbox.load(), now, prefix=True)] == ["mended"]


def test_without_prefix_no_second_server_is_kept(sandbox: ConfigSandbox) -> None:
    assert running(sandbox, "a", {"a": WRONG}, prefix=False) == ["old-a"]
    assert running(sandbox, "a", {"a": WRONG, "b": {"command": "new-b"}}, prefix=False) == ["new-b"]


async def test_an_edit_of_an_env_file_is_followed(sandbox: ConfigSandbox) -> None:
    (sandbox.cwd / "keys.env").write_text("KEY=old")
    sandbox.write({"mcpServers": {"a": {"command": "x", "envFile": "keys.env"}}})
    async with watching(sandbox) as watch:
        assert await watch.looks() == []
        (sandbox.cwd / "keys.env").write_text("KEY=newer")
        (settings,) = await watch.looks()
        assert settings.servers[0].env == {"KEY": "newer"}
