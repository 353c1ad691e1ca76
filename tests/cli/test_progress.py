"""Progress is shown on a terminal in one line that changes, elsewhere in few lines."""

import io

import pytest

from headgate.domain.terminal import ProgressPrinter


class Terminal(io.StringIO):
    """What a terminal would show."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def counted(stream: io.StringIO, *, step_seconds: float) -> None:
    """Tell of fifty steps."""
    clock = Clock()
    progress = ProgressPrinter(stream, clock)
    for done in range(1, 51):
        clock.now += step_seconds
        progress.show_count("asked", done, 50)
    progress.clear()


def test_what_is_done_at_once_is_not_worth_a_line() -> None:
    for stream in (io.StringIO(), Terminal()):
        counted(stream, step_seconds=0.001)
        assert stream.getvalue() == ""


def test_a_log_gets_a_line_every_few_seconds() -> None:
    stream = io.StringIO()
    counted(stream, step_seconds=0.25)
    assert stream.getvalue().splitlines() == ["asked: 20 of 50", "asked: 40 of 50"]


def test_a_terminal_gets_one_line_that_changes_and_goes() -> None:
    stream = Terminal()
    counted(stream, step_seconds=0.25)
    shown = stream.getvalue()
    assert "\n" not in shown
    assert shown.startswith("\rasked: 1 of 50\rasked: 2 of 50")
    assert shown.endswith("\rasked: 50 of 50\r" + " " * len("asked: 50 of 50") + "\r")


def test_what_is_said_stays_and_is_not_written_into_the_line_that_changes() -> None:
    stream = Terminal()
    clock = Clock()
    progress = ProgressPrinter(stream, clock)
    clock.now += 1
    progress.show_count("vectors", 1_000, 20_000)
    progress.print_line("connecting to files")
    assert stream.getvalue() == "\rvectors: 1,000 of 20,000\r" + " " * 24 + "\rconnecting to files\n"


def told(stream: io.StringIO, *, name: str = "") -> str:
    """Tell of ten files and four hundred chunks in ten seconds, half of all there is."""
    clock = Clock()
    progress = ProgressPrinter(stream, clock)
    progress.show_bar("reading", 0, 20, {"files": 0, "chunks": 0})
    clock.now += 10
    progress.show_bar("reading", 10, 20, {"files": 10, "chunks": 400}, name)
    return stream.getvalue()


def test_a_terminal_gets_a_bar_with_files_and_chunks_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    drawn = "[############............]"
    assert told(Terminal(), name="docs/a.md") == (
        f"\rreading {drawn} 10 of 20  1.0 files/s  40 chunks/s  docs/a.md"
    )


def test_a_log_gets_the_speeds_without_a_bar() -> None:
    assert told(io.StringIO(), name="docs/a.md") == "reading: 10 of 20, 1.0 files/s, 40 chunks/s\n"


def test_a_bar_never_is_wider_than_the_terminal_and_no_name_moves_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    shown = told(Terminal(), name="a\x1b[2J\n" + "b" * 100)
    assert len(shown) == len("\r") + 69
    assert "\x1b" not in shown
    assert "\n" not in shown


def test_letters_that_take_two_columns_do_not_break_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream, clock = Terminal(), Clock()
    progress = ProgressPrinter(stream, clock)
    for name in ("文" * 60, ""):
        clock.now += 1
        progress.show_bar("reading", 1, 2, {}, name)
    _, wide, narrow = stream.getvalue().split("\r")
    drawn = "reading [############............] 1 of 2"
    letters = wide.removeprefix(f"{drawn}  ")
    assert letters == "文" * ((79 - len(drawn) - 2) // 2)
    assert narrow == drawn + " " * (2 + 2 * len(letters))
