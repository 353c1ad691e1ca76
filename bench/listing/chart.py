"""Draws the figures of the last whole run: tokens per mode, and what tools cost as they are used."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from bench.listing.measured import Measured
from bench.listing.tokens import ALL, DIRECT
from bench.listing.uses import FEW, USES, Spent
from headgate.domain.listing_mode import ListingMode

_WIDTH: Final = 900
_TOP: Final = 64
_ROW: Final = 28
# Where bars begin and end; a power of ten is as wide as the next.
_LEFT: Final = 190
_RIGHT: Final = 800
_LEAST: Final = 100
_COLOURS: Final = {ListingMode.FULL.value: "whole", ListingMode.SLIM.value: "slim"}
# Modes of the second part; the others lie between them.
_SHOWN: Final = (ListingMode.FULL.value, ListingMode.SLIM.value, "budget 3,000", ListingMode.SEARCH.value)
_GROUP: Final = 290
_BAR: Final = 22
_STYLE: Final = """  <style>
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #6f7d8f; }
    .head { font-size: 15px; font-weight: 600; }
    .note { font-size: 12px; }
    .whole { fill: #74522f; } .slim { fill: #35577d; } .gate { fill: #1f6f54; }
    .line { stroke: #6f7d8f; stroke-width: 1; stroke-dasharray: 3 4; opacity: .5; }
  </style>"""


def chart(measured: Measured) -> str:
    """The picture as SVG; readable on light and on dark pages."""
    listed = [one for one in measured.listed if one.servers == ALL and one.mode != DIRECT]
    first = _bars([(one.mode, one.tokens, one.share) for one in listed])
    below = _TOP + _ROW * len(listed) + 56
    few = [one for one in measured.spent if one.servers == FEW]
    second = _groups(few, below)
    height = below + 244
    title = "Tokens of tools/list per mode, and tokens of context after some uses of tools"
    said = ", ".join(f"{one.mode} {one.tokens:,.0f}" for one in listed)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">'
    )
    described = (
        f'  <desc id="desc">Tokens of tools/list with all servers: {escape(said)}. '
        f"Below, a conversation with {few[0].tools} tools: {escape(_told(few))}.</desc>"
    )
    named = f'  <title id="title">{title}</title>'
    return "\n".join([opening, named, described, _STYLE, *first, *second, "</svg>\n"])


def _bars(rows: Sequence[tuple[str, float, float]]) -> list[str]:
    found = [
        _text(10, 24, "tokens of tools/list, all servers behind one gateway", "head"),
        _text(10, 44, "each line is ten times the one before", "note"),
    ]
    bottom = _TOP + _ROW * len(rows)
    for power in range(int(math.log10(_LEAST)), 7):
        x = _x(10**power)
        found.append(f'  <path class="line" d="M{x} {_TOP - 6} V{bottom}"/>')
        found.append(_text(x, bottom + 16, f"{10**power:,}", "note", "middle"))
    for number, (mode, tokens, share) in enumerate(rows):
        y = _TOP + _ROW * number
        width = _x(tokens) - _LEFT
        found.append(_text(_LEFT - 10, y + 15, mode, "", "end"))
        found.append(_rect(_LEFT, y, width, 20, _COLOURS.get(mode, "gate")))
        label = f"{tokens:,.0f}" if mode == ListingMode.FULL else f"{tokens:,.0f} ({_percent(share)})"
        found.append(_text(_LEFT + width + 6, y + 15, label, "note"))
    return found


def _x(tokens: float) -> int:
    whole = math.log10(2_000_000 / _LEAST)
    return round(_LEFT + (_RIGHT - _LEFT) * math.log10(max(tokens, _LEAST) / _LEAST) / whole)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.01 else f"{share:.2%}"


def _groups(spent: Sequence[Spent], top: int) -> list[str]:
    """Bars side by side: where a short list is the cheaper one, and where it is not."""
    own = {(one.mode, one.uses): one.context for one in spent}
    highest = max(own[mode, uses] for mode in _SHOWN for uses in USES)
    found = [
        _text(
            10, top, f"tokens of context for tools: {spent[0].tools} tools, every use of another tool", "head"
        )
    ]
    for number, uses in enumerate(USES):
        left = 10 + _GROUP * number
        found.append(_text(left, top + 26, f"after {uses} {'use' if uses == 1 else 'uses'}"))
        for row, mode in enumerate(_SHOWN):
            y = top + 42 + row * (_BAR + 26)
            tokens = own[mode, uses]
            width = max(2, round((_GROUP - 90) * tokens / highest))
            found.append(_text(left, y + 10, mode, "note"))
            found.append(_rect(left, y + 15, width, _BAR, _COLOURS.get(mode, "gate")))
            found.append(_text(left + width + 6, y + 31, f"{tokens:,.0f}", "note"))
    return found


def _told(spent: Sequence[Spent]) -> str:
    own = {(one.mode, one.uses): one.context for one in spent}
    return "; ".join(
        f"{mode} {', '.join(f'{own[mode, uses]:,.0f} after {uses}' for uses in USES)}" for mode in _SHOWN
    )


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'  <text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'  <rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
