"""The tables of the section as rows of text, for the terminal and for the documentation."""

from collections.abc import Callable
from typing import Final

from bench.listing.catalogs import SECOND_MODE
from bench.listing.measured import Measured
from bench.listing.tokens import ALL, BOTH_AZURES, SUM, sums
from bench.listing.uses import FEW, USES, Spent
from bench.pages import Table
from bench.tables import figure
from headgate.domain.listing_mode import ListingMode

_MODES: Final = (
    ListingMode.FULL,
    ListingMode.SLIM,
    ListingMode.SEARCH,
    ListingMode.DYNAMIC,
    ListingMode.BUDGET,
    ListingMode.AUTO,
)


def tokens(measured: Measured, servers: str) -> Table:
    """What is listed of these servers in each mode."""
    header = ("mode", "tools listed", "bytes", "tokens", "of full", "tokens of instructions")
    rows = [
        (
            one.mode,
            f"{one.tools:,}",
            f"{one.bytes:,.0f}",
            f"{one.tokens:,.0f}",
            f"{one.share:.2%}",
            f"{one.instructions:,}",
        )
        for one in measured.listed
        if one.servers == servers
    ]
    return header, rows


def servers(measured: Measured) -> Table:
    """Each server alone, the largest first, with what it comes to."""
    header = ("server", "tools", *_MODES, "slim of full")
    ordered = sorted(measured.alone, key=lambda one: -one.tokens[ListingMode.FULL])
    total = sums([one for one in measured.alone if one.server != SECOND_MODE])
    count = sum(one.tools for one in measured.alone if one.server != SECOND_MODE)
    lines = [(SUM, count, total), *((one.server, one.tools, one.tokens) for one in ordered)]
    rows = [
        (
            name,
            f"{tools:,}",
            *(f"{own[mode]:,}" for mode in _MODES),
            f"{own[ListingMode.SLIM] / own[ListingMode.FULL]:.0%}",
        )
        for name, tools, own in lines
    ]
    return header, rows


def context(measured: Measured, who: str) -> Table:
    """What tools take of the context after some uses."""
    return _after_uses(measured, who, lambda one: one.context)


def sent(measured: Measured, who: str) -> Table:
    """What is sent to the model for tools until then, as if nothing were cached."""
    return _after_uses(measured, who, lambda one: one.sent)


def _after_uses(measured: Measured, who: str, value: Callable[[Spent], float]) -> Table:
    own = {(one.mode, one.uses): one for one in measured.spent if one.servers == who}
    header = ["mode"]
    for uses in USES:
        header += [f"after {uses} {'use' if uses == 1 else 'uses'}", "saved"]
    rows = []
    for mode in dict.fromkeys(mode for mode, _ in own):
        cells = [mode]
        for uses in USES:
            spent, whole = value(own[mode, uses]), value(own[ListingMode.FULL, uses])
            cells += [f"{spent:,.0f}", "" if mode == ListingMode.FULL else f"{1 - spent / whole:.1%}"]
        rows.append(cells)
    return header, rows


def discovery(measured: Measured, who: str) -> Table:
    """What one question to the gateway costs."""
    header = ("mode", "questions", "tokens asked", "answered, mean", "answered, p95", "found at once")
    rows = [
        (
            one.mode,
            f"{one.uses:,}",
            f"{one.asked:.0f}",
            f"{one.answered:,.0f}",
            f"{one.answered_p95:,.0f}",
            "-" if one.found_at_once is None else f"{one.found_at_once:.0%}",
        )
        for one in measured.found
        if one.servers == who
    ]
    return header, rows


def reach(measured: Measured) -> Table:
    """Who could be called."""
    header = ("mode", "tools listed", "called", "reached")
    rows = [(one.mode, f"{one.listed:,}", f"{one.called:,}", f"{one.reached:,}") for one in measured.reached]
    return header, rows


def times(measured: Measured) -> Table:
    """tools/list in milliseconds and bytes."""
    header = (
        *("tools", "mode", "listed", "pages", "bytes", "first time, ms", "a page p50, ms", "p95, ms"),
        *("bare p50, ms", "ratio", "all pages p50, ms", "bare, ms"),
    )
    rows = []
    for one in measured.timed:
        counts = (f"{one.tools:,}", one.mode, f"{one.listed:,}", f"{one.pages:,}", f"{one.bytes:,}")
        page = (figure(one.first_ms), figure(one.p50_ms), figure(one.p95_ms), figure(one.bare_p50_ms))
        rows.append((*counts, *page, f"{one.ratio:.1f}", figure(one.all_p50_ms), figure(one.bare_all_p50_ms)))
    return header, rows


def sizes(measured: Measured) -> Table:
    """A gateway by its size."""
    header = (
        *("tools", "servers", "start to first listing, ms", "expandSchema p50, ms", "p95, ms", "most, ms"),
        "process, MiB",
    )
    rows = []
    for one in measured.sized:
        expand = (one.expand_p50_ms, one.expand_p95_ms, one.expand_most_ms)
        figures = map(figure, (one.started_ms, *expand, one.resident_mib))
        rows.append((f"{one.tools:,}", f"{one.servers:,}", *figures))
    return header, rows


def memory(measured: Measured) -> Table:
    """The forms of real servers' tools."""
    header = (
        "servers",
        "tools",
        "definitions, MiB",
        "forms, MiB",
        "held, MiB",
        "made in, s of CPU",
    )
    rows = [
        (
            f"{one.servers}",
            f"{one.tools:,}",
            *map(figure, (one.definitions_mib, one.forms_mib, one.held_mib, one.made_seconds)),
        )
        for one in measured.kept
    ]
    return header, rows


def slim_texts(measured: Measured) -> Table:
    """Search over slim texts."""
    header = ("set", "by", "tools", "shortened", "bytes left", "asked", "R@5 full", "R@5 slim", "points")
    rows = [
        (
            *(one.labelled, one.way, f"{one.tools:,}", f"{one.shortened:,}", f"{one.bytes_left:.0%}"),
            *(f"{one.questions:,}", f"{one.full:.3f}", f"{one.slim:.3f}", _points(one.lost)),
        )
        for one in measured.compared
    ]
    return header, rows


def _points(lost: float) -> str:
    # Adding nothing makes a zero of minus zero.
    return f"{round(-lost * 100, 1) + 0.0:+.1f}"


def counter(measured: Measured) -> Table:
    """The counter beside the reference."""
    header = ("counted by", "MB/s", "texts", "tokens", "different")
    one = measured.counted
    if one is None:
        return header, []
    counts = (f"{one.texts:,}", f"{one.tokens:,}", str(one.different))
    return header, [
        ("headgate, first time", figure(one.first_mb_per_second), *counts),
        ("headgate, again", figure(one.again_mb_per_second), *counts),
        (one.reference, figure(one.reference_mb_per_second), counts[0], "", ""),
    ]


# Every table by the name that the documentation has for it, with its title.
TABLES: Final[dict[str, tuple[str, Callable[[Measured], Table]]]] = {
    "tokens": ("tokens, all servers behind one gateway", lambda measured: tokens(measured, ALL)),
    "tokens-both-azures": (
        f"tokens, all servers {BOTH_AZURES}",
        lambda measured: tokens(measured, BOTH_AZURES),
    ),
    "servers": ("tokens, each server alone behind a gateway", servers),
    "context": ("tokens of context, all servers", lambda measured: context(measured, ALL)),
    "context-few": (f"tokens of context, {FEW}", lambda measured: context(measured, FEW)),
    "sent": ("tokens sent without a cache, all servers", lambda measured: sent(measured, ALL)),
    "sent-few": (f"tokens sent without a cache, {FEW}", lambda measured: sent(measured, FEW)),
    "discovery": ("tokens of a question, all servers", lambda measured: discovery(measured, ALL)),
    "discovery-few": (f"tokens of a question, {FEW}", lambda measured: discovery(measured, FEW)),
    "reach": ("every tool called", reach),
    "times": ("tools/list over loopback HTTP", times),
    "sizes": ("a gateway by its size", sizes),
    "memory": ("memory of the forms", memory),
    "slim-texts": ("search over slim texts", slim_texts),
    "counter": ("the counter of tokens", counter),
}
