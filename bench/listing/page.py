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
from bench.pages import Whole, described, filled, in_search_terms, judged, markdown, write
from bench.process import ROOT
from headgate.domain.listing_mode import ListingMode

RESULT: Final = ROOT / "bench" / "results" / "listing.json"
_FIGURES: Final = ROOT / "docs" / "figures"
PAGE: Final = _FIGURES / "listing.md"
PAGES: Final = (PAGE, _FIGURES / "listing-servers.md", _FIGURES / "listing-speed.md")
CHART: Final = ROOT / "docs" / "images" / "listing.svg"
_COUNTED: Final = (
    "Context is the number of tokens that tools occupy at that moment: the list, the mode's part of\n"
    "the instructions, and every request to the gateway with its answer. Every use is of another\n"
    "tool, and each tool that is not listed whole is expanded or searched first: the worst case for a\n"
    "short list. The call itself costs the same in every mode and is not included, except for what\n"
    "`call_tool` adds."
)
_SENT: Final = (
    "The model receives its context at every step, and a request to the gateway is one more step. The\n"
    "sum without prompt caching; a cache makes a repeated prefix cheaper while the list stays the\n"
    "same, which does not hold for `dynamic`:"
)

_COMPARED: Final = (
    "The same queries to the same search, over whole definitions and over slim ones. The gateway\n"
    "always searches whole definitions; this measures whether slim tools can still be told apart.\n"
    "*Shortened* counts the tools that slim shortens. `HEADGATE_RETRIEVAL_DATA` names the sets, as for\n"
    "[tool retrieval](tool-retrieval.md)."
)


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The pages and the chart as they should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=Whole))
    return {page: filled(page.read_text(), blocks) for page in PAGES} | {CHART: chart(measured)}


def _blocks(measured: Measured, whole: Whole) -> dict[str, str]:
    return {
        "run": described(whole),
        "chart": "![Tokens of tools/list per mode, and of a conversation with tools](../images/listing.svg)",
        "tokens": _tokens(measured),
        "servers": _servers(measured),
        "uses": _uses(measured, ALL),
        "small": _uses(measured, FEW),
        "speed": _speed(measured),
        "expand": markdown(tables.sizes(measured)),
        "memory": markdown(tables.memory(measured)),
        "retrieval": f"{_COMPARED}\n\n{in_search_terms(markdown(tables.slim_texts(measured)))}",
        "goals": in_search_terms(judged(whole.goals)),
    }


def _tokens(measured: Measured) -> str:
    listed = {(one.servers, one.mode): one for one in measured.listed}
    both, once = listed[BOTH_AZURES, ListingMode.FULL], listed[ALL, ListingMode.FULL]
    slim = listed[BOTH_AZURES, ListingMode.SLIM]
    azure = (
        f"azure-mcp is among the 98 in two modes and counted once, in its default mode. With\n"
        f"`{SECOND_MODE}` too, full has {both.tokens:,.0f} tokens instead of {once.tokens:,.0f}, and "
        f"slim\n{slim.tokens:,.0f} ({slim.share:.1%})."
    )
    reach = "Every tool was called in every mode over HTTP; *reached* counts answers of the server:"
    counter = "The gateway's token counter, compared with the reference implementation:"
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
        "Each list includes its own `expandSchema`. For a server with a few short tools that is more than\n"
        "slim saves, and `auto` lists them in full."
    )
    return "\n\n".join([said, markdown((header, rows))])


def _uses(measured: Measured, who: str) -> str:
    parts = [] if who == FEW else [_COUNTED]
    sent = _SENT if who == ALL else "Tokens sent, without prompt caching:"
    parts += [markdown(tables.context(measured, who)), sent]
    parts += [markdown(tables.sent(measured, who)), "One request to the gateway:"]
    return "\n\n".join([*parts, markdown(tables.discovery(measured, who))])


def _speed(measured: Measured) -> str:
    said = (
        "Measured by a client over loopback HTTP. *First time* is the handshake and all pages in a mode\n"
        "that was not requested since the start, `auto` first, so that the others find the slim forms;\n"
        "*a page* is the first page, prepared, 50 times; *bare* is a server that only sends the same\n"
        "bytes, measured alternately."
    )
    return "\n\n".join([said, markdown(tables.times(measured))])


if __name__ == "__main__":
    main()
