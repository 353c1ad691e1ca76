"""The report of `headgate listing`: its values, as JSON and as plain text."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.app.mode_listing import SEARCH
from headgate.catalog.evaluation.evaluation_report import UnreachedServer
from headgate.catalog.listing_builder import choice_line
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.listing_mode import ListingMode
from headgate.domain.terminal import printable, table_lines, wrap_text


class ModeChoice(msgspec.Struct, frozen=True):
    """The mode that a client gets, who decided that, and what it comes to."""

    mode: ListingMode
    decided_by: str
    came_to: ListingMode
    why: str


class ModeCount(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: tokens of the whole tools array, and the number of tools in each form."""

    mode: ListingMode
    came_to: ListingMode
    tokens: int
    # Of what full takes.
    share: float
    own: int
    whole: int
    partitioned: int
    slim: int
    stub: int
    search: int


class ServerCount(msgspec.Struct, frozen=True):
    """One server: its tools, and the tokens of those that are listed, by mode."""

    name: str
    tools: int
    tokens: Mapping[ListingMode, int]


class NamedTool(msgspec.Struct, frozen=True):
    """A tool by its server and its name there."""

    server: str
    name: str


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients know it; those of the gateway itself have no server."""

    public_name: str
    server: str
    name: str
    # own, whole, partitioned, slim, stub, or search where it is not listed.
    form: str
    tokens: int
    pinned: bool = False
    renamed: bool = False
    # cut or hashed, where the public name is not the plain one.
    name_is: str = ""
    # Its place among the most used, from 1 on.
    rank: int | None = None


class _ReportHead(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that both reports begin with."""

    version: str
    client: str
    dialect: Dialect
    budget_tokens: int
    # The most tools that the client can handle, if that is known.
    most_tools: int | None
    tools: int
    unreached: tuple[UnreachedServer, ...]


class ListingOverview(_ReportHead, frozen=True, kw_only=True, tag_field="kind", tag="overview"):
    """The tokens of each mode."""

    choice: ModeChoice
    modes: tuple[ModeCount, ...]
    servers: tuple[ServerCount, ...]
    pinned: int
    hidden: int
    renamed: int
    names_cut: int
    names_hashed: int


class ToolListReport(_ReportHead, frozen=True, kw_only=True, tag_field="kind", tag="listing"):
    """Everything in one mode, tool by tool."""

    mode: ListingMode
    came_to: ListingMode
    why: str
    tokens: int
    listed: tuple[ListedTool, ...]
    hidden: tuple[NamedTool, ...]
    # Pinned, and yet there was no room.
    pins_left: tuple[str, ...]
    # The changes by the dialect, by tool.
    changes: Mapping[str, tuple[str, ...]]


PreviewReport = ListingOverview | ToolListReport


_USUAL_WIDTH: Final = 100
_NARROWEST: Final = 60
# The columns for form and tokens, and the gaps.
_OTHER_COLUMNS: Final = 24


def format_preview(report: PreviewReport, *, as_json: bool) -> str:
    """The report for standard output: as JSON, or as text as wide as the terminal."""
    if as_json:
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    width = max(shutil.get_terminal_size((_USUAL_WIDTH, 0)).columns, _NARROWEST)
    page = _ReportText(width)
    lines = page.of_overview(report) if isinstance(report, ListingOverview) else page.of_listing(report)
    return "\n".join(lines)


class _ReportText:
    def __init__(self, width: int) -> None:
        self._width = width

    def of_overview(self, report: ListingOverview) -> Iterator[str]:
        servers = _count(len(report.servers), "server")
        yield from self._paragraph(
            f"{_count(report.tools, 'tool')} of {servers}; tokens are o200k, of tools/list"
        )
        yield from self._unreached(report)
        choice = report.choice
        chosen = f"{_client_line(report)}: {choice.mode}, as {choice.decided_by} says"
        if choice.mode is not ListingMode.AUTO:
            yield from self._paragraph(chosen)
        else:
            yield from self._paragraph(f"{chosen}, which comes to {choice.came_to}: {choice.why}")
            # The same line that `headgate serve` logs.
            tokens = {one.mode: f"{one.tokens:,}" for one in report.modes}
            full, slim = tokens[ListingMode.FULL], tokens[ListingMode.SLIM]
            yield from self._paragraph(choice_line(choice.came_to, full, slim, report.budget_tokens))
        numbers = {
            "pinned": report.pinned,
            "hidden": report.hidden,
            "renamed": report.renamed,
            "with a name that was cut": report.names_cut,
            "with a hash in the name": report.names_hashed,
        }
        counted = [f"{number:,} {what}" for what, number in numbers.items() if number]
        yield from self._paragraph(f"{', '.join(counted)}: --mode names them" if counted else "")
        yield from self._table(
            "Modes",
            ("mode", "tokens", "% of full", "whole", "partitioned", "slim", "stub", "search", "own"),
            [_mode_row(one) for one in report.modes],
        )
        yield from self._table(
            "Servers: tokens of their tools in each mode",
            ("server", "tools", *(one.mode for one in report.modes)),
            [
                (one.name, str(one.tools), *(str(one.tokens[mode.mode]) for mode in report.modes))
                for one in report.servers
            ],
        )

    def of_listing(self, report: ToolListReport) -> Iterator[str]:
        listed = sum(one.form != SEARCH for one in report.listed)
        left = len(report.listed) - listed
        came_to = f" (auto: {report.why})" if report.mode is ListingMode.AUTO else ""
        rest = f", {left:,} by search" if left else ""
        yield from self._paragraph(f"{_client_line(report)}: {report.came_to}{came_to}")
        yield from self._paragraph(
            f"{_count(listed, 'tool')} listed in {report.tokens:,} tokens (o200k){rest}"
        )
        yield from self._unreached(report)
        for name in report.pins_left:
            yield from self._paragraph(f"Pinned, but there is no room for it: {name}")
        yield from self._table(
            "Tools",
            ("public name", "form", "tokens", "server: its name there"),
            [_tool_row(one) for one in report.listed],
            # A public name is there to be copied, so none is cut.
            2 * max((len(one.public_name) for one in report.listed), default=0) + _OTHER_COLUMNS,
        )
        yield from self._table(
            "Hidden: neither listed, nor found, nor called",
            ("server", "its name there"),
            [(one.server, one.name) for one in report.hidden],
        )
        yield from self._table(
            f"Changed for the dialect {report.dialect}",
            ("tool", "what"),
            [(name, line) for name, lines in report.changes.items() for line in lines],
        )

    def _unreached(self, report: PreviewReport) -> Iterator[str]:
        for one in report.unreached:
            yield from self._paragraph(f"Not listed: {one.reason}")

    def _table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0
    ) -> Iterator[str]:
        if rows:
            yield ""
            yield from self._paragraph(title)
            yield from table_lines(head, rows, max(self._width, width))

    def _paragraph(self, text: str) -> list[str]:
        return wrap_text(printable(text), self._width) if text else []


def _client_line(report: PreviewReport) -> str:
    whom = f"Client {report.client!r}" if report.client else "A client of no known name"
    known = [f"at most {report.most_tools} tools"] if report.most_tools is not None else []
    if report.dialect is not Dialect.PLAIN:
        known.append(f"dialect {report.dialect}")
    return f"{whom} ({', '.join(known)})" if known else whom


def _mode_row(one: ModeCount) -> tuple[str, ...]:
    mode = one.mode if one.came_to is one.mode else f"{one.mode} ({one.came_to})"
    numbers = (one.whole, one.partitioned, one.slim, one.stub, one.search, one.own)
    return (mode, str(one.tokens), f"{100 * one.share:.2f}", *map(str, numbers))


def _tool_row(one: ListedTool) -> tuple[str, ...]:
    notes = {
        "pinned": one.pinned,
        "renamed": one.renamed,
        f"name {one.name_is}": bool(one.name_is),
        f"used most, place {one.rank}": one.rank is not None,
    }
    noted = [note for note, holds in notes.items() if holds]
    form, tokens = ("by search", "-") if one.form == SEARCH else (one.form, str(one.tokens))
    origin = f"{one.server}: {one.name}" if one.server else "the gateway"
    return one.public_name, form, tokens, f"{origin} ({', '.join(noted)})" if noted else origin


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
