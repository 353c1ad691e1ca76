"""Writes the figures of the last whole run into the documentation: `python -m bench.listing.page`.

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`; everything else of the page is left alone.
The chart is drawn anew, too.
"""

from pathlib import Path
from typing import Final

import msgspec

from bench.listing import tables
from bench.listing.catalogs import SECOND_MODE
from bench.listing.chart import chart
from bench.listing.measured import Measured
from bench.listing.tokens import ALL, BOTH_AZURES
from bench.listing.uses import FEW
from bench.pages import Whole, described, filled, judged, markdown, write
from bench.process import ROOT
from headgate.domain.listing_mode import ListingMode

RESULT: Final = ROOT / "bench" / "results" / "listing.json"
PAGE: Final = ROOT / "docs" / "listing.md"
CHART: Final = ROOT / "docs" / "images" / "listing.svg"
_COUNTED: Final = (
    "Context is what tools take of the window at that moment: the list, what the mode adds to the "
    "instructions, and every question to the gateway with its answer. Every use is of another tool, and each "
    "tool that is not shown whole is expanded or searched for first: the worst case for a short list. The "
    "call itself costs the same everywhere and is left out, but for what `call_tool` adds to it."
)
_SENT: Final = (
    "A model is sent its context again at every step, and asking the gateway is a step more. Added up, as if "
    "nothing were cached; a provider's prompt cache makes what was sent before cheaper, as long as the list "
    "stays the same, which in `dynamic` it does not:"
)

_COMPARED: Final = (
    "The same requests to the same search, once over whole definitions and once over what mode slim lists of "
    "them. The gateway itself always searches whole definitions; this only asks whether a model that reads "
    "slim tools can still tell them apart. *Shortened* are the tools of which slim says less. "
    "`HEADGATE_RETRIEVAL_DATA` names the sets, as for [search](retrieval.md)."
)


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The page and the chart as they should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=Whole))
    return {PAGE: filled(PAGE.read_text(), blocks), CHART: chart(measured)}


def _blocks(measured: Measured, whole: Whole) -> dict[str, str]:
    return {
        "run": described(whole),
        "chart": "![Tokens of tools/list per mode, and of a conversation with tools](images/listing.svg)",
        "tokens": _tokens(measured),
        "servers": _servers(measured),
        "uses": _uses(measured, ALL),
        "small": _uses(measured, FEW),
        "speed": _speed(measured),
        "expand": markdown(tables.sizes(measured)),
        "memory": markdown(tables.memory(measured)),
        "retrieval": f"{_COMPARED}\n\n{markdown(tables.slim_texts(measured))}",
        "goals": judged(whole.goals),
    }


def _tokens(measured: Measured) -> str:
    listed = {(one.servers, one.mode): one for one in measured.listed}
    both, once = listed[BOTH_AZURES, ListingMode.FULL], listed[ALL, ListingMode.FULL]
    slim = listed[BOTH_AZURES, ListingMode.SLIM]
    azure = (
        f"azure-mcp is among the 98 in two modes. It is counted once, as it starts by itself; with "
        f"`{SECOND_MODE}` as well, full has {both.tokens:,.0f} tokens instead of {once.tokens:,.0f}, and "
        f"slim {slim.tokens:,.0f}, {slim.share:.1%} of that."
    )
    reach = "Every tool called in every mode, over HTTP; reached is what its server's own tool has answered:"
    counter = "Tokens are counted by the gateway's own counter, compared here with the reference:"
    return "\n\n".join(
        [
            markdown(tables.tokens(measured, ALL)),
            azure,
            reach,
            markdown(tables.reach(measured)),
            counter,
            markdown(tables.counter(measured)),
        ]
    )


def _servers(measured: Measured) -> str:
    header, rows = tables.servers(measured)
    said = (
        "Each of these lists has `expandSchema` of its own; where a server has a few short tools, that is "
        "more than slim saves, and `auto` lists them in full."
    )
    summary = f"<details><summary>All {len(rows) - 1}, the largest first</summary>"
    parts = [said, markdown((header, rows[:1])), summary, markdown((header, rows[1:])), "</details>"]
    return "\n\n".join(parts)


def _uses(measured: Measured, who: str) -> str:
    parts = [] if who == FEW else [_COUNTED]
    parts += [markdown(tables.context(measured, who)), _SENT if who == ALL else "Sent, without a cache:"]
    parts += [markdown(tables.sent(measured, who)), "One question to the gateway:"]
    return "\n\n".join([*parts, markdown(tables.discovery(measured, who))])


def _speed(measured: Measured) -> str:
    said = (
        "As a client sees it over loopback HTTP. *First time* is the handshake and all pages in a mode that "
        "nobody has asked for since the start, `auto` first, so that the others find the tools in few words; "
        "*a page* is the first one, prepared, 50 times; *bare* is a server that sends the same bytes and "
        "does nothing else, asked in turn."
    )
    return "\n\n".join([said, markdown(tables.times(measured))])


if __name__ == "__main__":
    main()
