"""Draws the figures of the last whole run: tokens read beside the whole, and milliseconds by size."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from bench.responses.conversations import Talk
from bench.responses.measured import Measured
from bench.responses.speed import Timed
from bench.responses.tables import CONTENTS, megabytes

_WIDTH: Final = 900
_TOP: Final = 64
_ROW: Final = 28
# Where bars begin and end; a power of ten is as wide as the next.
_LEFT: Final = 400
_RIGHT: Final = 800
_LEAST: Final = 100
_POWERS: Final = range(2, 7)
# Each of the two plots, without its names to the right.
_PLOT_WIDTH: Final = 270
_PLOT_HEIGHT: Final = 300
_PLOT_STEP: Final = 440
_PLOT_LEFT: Final = 60
# Milliseconds at the bottom and at the top, as powers of ten.
_MS: Final = (-1, 4)
_LABEL: Final = 15
_STYLE: Final = """  <style>
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #6f7d8f; }
    .head { font-size: 15px; font-weight: 600; }
    .note { font-size: 12px; }
    .whole { fill: #74522f; } .gate { fill: #1f6f54; }
    .line { stroke: #6f7d8f; stroke-width: 1; stroke-dasharray: 3 4; opacity: .5; }
    .ours { stroke: #1f6f54; stroke-width: 2; fill: none; }
    .to { stroke: #6f7d8f; stroke-width: 1; opacity: .4; fill: none; }
  </style>"""


def chart(measured: Measured) -> str:
    """The picture as SVG; readable on light and on dark pages."""
    bars = _bars(measured.talks)
    below = _TOP + _ROW * _lines(measured.talks) + 60
    kinds = list(dict.fromkeys(one.kind for one in measured.timed))
    plots = [_text(10, below, "milliseconds of CPU by size of the text, every operation", "head")]
    for number, kind in enumerate(kinds):
        own = [one for one in measured.timed if one.kind == kind]
        plots += _plot(own, kind, _PLOT_LEFT + _PLOT_STEP * number, below + 46)
    height = below + 46 + _PLOT_HEIGHT + 40
    said = "; ".join(f"{_name(one)}: {one.shown:,} of {one.whole:,}" for one in measured.talks)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">'
    )
    named = '  <title id="title">Tokens read of large results, and milliseconds by size</title>'
    described = (
        f'  <desc id="desc">Tokens read of the whole. {escape(said)}. '
        f"Below, {escape(_told(measured))}.</desc>"
    )
    return "\n".join([opening, named, described, _STYLE, *bars, *plots, "</svg>\n"])


def _lines(talks: Sequence[Talk]) -> int:
    return len(talks) + len({one.workload for one in talks})


def _name(talk: Talk) -> str:
    return f"{CONTENTS[talk.workload]}, {talk.way}"


def _bars(talks: Sequence[Talk]) -> list[str]:
    found = [
        _text(10, 24, "tokens that an agent reads of a large result", "head"),
        _text(10, 44, "each line is ten times the one before", "note"),
    ]
    bottom = _TOP + _ROW * _lines(talks)
    for power in _POWERS:
        x = _x(10**power)
        found.append(f'  <path class="line" d="M{x} {_TOP - 6} V{bottom}"/>')
        found.append(_text(x, bottom + 16, f"{10**power:,}", "note", "middle"))
    y, workload = _TOP, ""
    for talk in talks:
        if talk.workload != workload:
            workload = talk.workload
            found += _bar(y, f"{CONTENTS[workload]}: whole", talk.whole, "whole", f"{talk.whole:,}")
            y += _ROW
        found += _bar(y, talk.way, talk.shown, "gate", f"{talk.shown:,} ({talk.saved:.1%} saved)")
        y += _ROW
    return found


def _bar(y: int, name: str, tokens: int, kind: str, label: str) -> list[str]:
    width = _x(tokens) - _LEFT
    return [
        _text(_LEFT - 10, y + 15, name, "note", "end"),
        f'  <rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="20" rx="4"/>',
        _text(_LEFT + width + 6, y + 15, label, "note"),
    ]


def _x(tokens: float) -> int:
    whole = math.log10(10 ** _POWERS[-1] / _LEAST)
    return round(_LEFT + (_RIGHT - _LEFT) * math.log10(max(tokens, _LEAST) / _LEAST) / whole)


def _plot(timed: Sequence[Timed], kind: str, left: int, top: int) -> list[str]:
    """One line for each operation; both axes by powers of ten, so that linear growth is a straight slope."""
    sizes = sorted({one.size for one in timed})
    columns = {size: left + round(_PLOT_WIDTH * at / (len(sizes) - 1)) for at, size in enumerate(sizes)}
    found = [_text(left, top - 14, kind)]
    for power in range(_MS[0], _MS[1] + 1):
        y = _y(10.0**power, top)
        found.append(f'  <path class="line" d="M{left} {y} H{left + _PLOT_WIDTH}"/>')
        found.append(_text(left - 6, y + 4, f"{10.0**power:,g}", "note", "end"))
    for size, x in columns.items():
        found.append(_text(x, top + _PLOT_HEIGHT + 18, megabytes(size), "note", "middle"))
    ends: list[tuple[int, str]] = []
    for name in dict.fromkeys(one.operation for one in timed):
        own = sorted((one for one in timed if one.operation == name), key=lambda one: one.size)
        points = " L".join(f"{columns[one.size]} {_y(one.ms, top)}" for one in own)
        found.append(f'  <path class="ours" d="M{points}"/>')
        ends.append((_y(own[-1].ms, top), f"{name} {own[-1].ms:,.0f}"))
    return [*found, *_names(sorted(ends), left + _PLOT_WIDTH)]


def _names(ends: Sequence[tuple[int, str]], x: int) -> list[str]:
    """The names at the ends of the lines, moved apart where lines end close to each other."""
    places: list[int] = []
    for y, _ in ends:
        places.append(max(y, places[-1] + _LABEL) if places else y)
    # Moved down by half of what that took, on the average.
    shift = round(sum(place - y for place, (y, _) in zip(places, ends, strict=True)) / len(ends))
    found = []
    for place, (y, name) in zip(places, ends, strict=True):
        found.append(f'  <path class="to" d="M{x + 2} {y} L{x + 18} {place - shift}"/>')
        found.append(_text(x + 22, place - shift + 4, name, "note"))
    return found


def _y(ms: float, top: int) -> int:
    low, high = _MS
    return round(top + _PLOT_HEIGHT * (high - max(low, math.log10(ms))) / (high - low))


def _told(measured: Measured) -> str:
    most = max(one.size for one in measured.timed)
    return f"milliseconds of CPU on {megabytes(most)}: " + ", ".join(
        f"{one.operation} of {one.kind} {one.ms:,.0f}" for one in measured.timed if one.size == most
    )


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'  <text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
