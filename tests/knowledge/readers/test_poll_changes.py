"""Watching: changes are reported once, when writing has ended, and none is missed."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.knowledge.readers.file_library import open_library, poll_changes
from testkit.waiting import eventually


async def no_wait(seconds: float) -> None:
    """The test goes on at once."""


class Scripted:
    """A directory that looks different each time, and in the end as it did last."""

    def __init__(self, *looks: Mapping[str, object]) -> None:
        self._looks: Iterator[Mapping[str, object]] = iter(looks)
        self._last: Mapping[str, object] = {}

    async def look(self) -> Mapping[str, object]:
        self._last = next(self._looks, self._last)
        return self._last


async def test_at_first_everything_is_to_be_read() -> None:
    watch = poll_changes(Scripted({"a": 1}).look, 1.0, sleep=no_wait)
    assert await anext(watch) == {"a"}
    await watch.aclose()


async def test_a_file_is_told_when_it_is_quiet() -> None:
    directory = Scripted({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 3, "b": 1}, {"a": 3})
    watch = poll_changes(directory.look, 1.0, sleep=no_wait)
    await anext(watch)
    assert await anext(watch) == {"a"}
    assert await anext(watch) == {"b"}
    await watch.aclose()


async def test_a_file_that_is_written_all_the_time_does_not_keep_the_others_waiting() -> None:
    directory = Scripted({"log": 0}, *({"log": number, "new": 1} for number in range(1, 100)))
    watch = poll_changes(directory.look, 1.0, sleep=no_wait)
    await anext(watch)
    assert await anext(watch) == {"log", "new"}
    await watch.aclose()


async def test_real_files_look_different_when_they_are_replaced_or_removed(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("one")
    async with open_library([tmp_path]) as library:
        watch = poll_changes(library.fingerprints, 1.0, sleep=no_wait)
        await anext(watch)
        file.with_name("new").write_text("two")
        file.with_name("new").rename(file)
        assert await anext(watch) == {f"{tmp_path.name}/a.md"}
        file.unlink()
        assert await anext(watch) == {f"{tmp_path.name}/a.md"}
        await watch.aclose()


async def test_a_file_looks_different_with_other_rights_and_with_another_text_of_the_same_day(
    tmp_path: Path,
) -> None:
    file = tmp_path / "docs/a.md"
    file.parent.mkdir()
    file.write_text("one")
    file.chmod(0)
    before = file.stat()
    async with open_library([file.parent]) as library:
        watch = poll_changes(library.fingerprints, 1.0, sleep=no_wait)
        await anext(watch)
        await eventually(lambda: _is_later(tmp_path, file), 30.0, "another time")
        file.chmod(0o600)
        assert await anext(watch) == {"docs/a.md"}
        await eventually(lambda: _is_later(tmp_path, file), 30.0, "another time")
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert await anext(watch) == {"docs/a.md"}
        await watch.aclose()


def _is_later(directory: Path, file: Path) -> bool:
    """Whether the clock of the disk, which goes in steps, is beyond the last change of a file."""
    probe = directory / "probe"
    probe.touch()
    return probe.stat().st_ctime_ns > file.stat().st_ctime_ns
