"""The goals of search, and figures of others that were published and not measured here."""

from collections.abc import Sequence
from statistics import mean
from typing import Final

import msgspec

from bench.retrieval.answer_coverage import Reach
from bench.retrieval.answer_threshold import Gate
from bench.retrieval.quality import MACRO, Line, Mean
from bench.retrieval.replies import Replies
from bench.retrieval.scale import Scale
from bench.retrieval.semantic import BOTH, WORDS

SETS: Final = 8
# The best column of the figures that were known before: fielded BM25 and MiniLM fused, character n-grams,
# the best clause.
BEST_KNOWN: Final = 0.7995
ANCHORS: Final = (
    ("smart-mcp-proxy 0.3.1, mcpproxy_golden_v1", "R@5 .670"),
    ("mcpproxy-go, mcpproxy_golden_v1", "R@5 .681"),
    ("OpenAI text-embedding-3-large, azure_mcp_2601", "R@1 .922, R@5 .984"),
)


class Goal(msgspec.Struct, frozen=True):
    """What was to be reached, and what was."""

    text: str
    measured: str
    met: bool


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the section has measured."""

    lines: Sequence[Line]
    means: Sequence[Mean]
    scales: Sequence[Scale]
    gates: Sequence[Gate]
    replies: Sequence[Replies]
    reaches: Sequence[Reach] = ()


def goals(measured: Measured) -> list[Goal]:
    """Those that the sets at hand allow to judge."""
    return [*_means(measured), *_sets(measured.lines), *_gate(measured.gates), *_cost(measured)]


def _means(measured: Measured) -> list[Goal]:
    if len({line.labelled for line in measured.lines}) <= SETS:
        return []
    macro = {one.engine: one for one in measured.means if one.sets == MACRO}
    ours = {f"headgate, {WORDS}", f"headgate, {BOTH}"}
    rivals = {name: one for name, one in macro.items() if not name.startswith("headgate")}
    best_words = max((one.recall_at_5 for one in rivals.values() if one.lexical), default=0.0)
    best = max(BEST_KNOWN, *(one.recall_at_5 for one in rivals.values()))
    words, both = (macro[name].recall_at_5 for name in sorted(ours))
    return [
        Goal(
            f"words: macro R@5 5 points above every other lexical engine (> {best_words + 0.05:.3f})",
            f"{words:.3f}",
            words >= best_words + 0.05,
        ),
        Goal(f"both: macro R@5 above every column (> {best:.3f})", f"{both:.3f}", both > best),
    ]


def _sets(lines: Sequence[Line]) -> list[Goal]:
    own = {line.labelled: line.metrics for line in lines if line.engine == f"headgate, {BOTH}"}
    found = []
    if "mcpproxy_golden_v1" in own:
        recall = own["mcpproxy_golden_v1"].recall_at_5
        found.append(Goal("both: mcpproxy_golden_v1 R@5 >= .85", f"{recall:.3f}", recall >= 0.85))
    if "azure_mcp_2601" in own:
        first = own["azure_mcp_2601"].recall_at_1
        found.append(Goal("both: azure_mcp_2601 R@1 >= .90", f"{first:.3f}", first >= 0.9))
        found.append(Goal("both: azure_mcp_2601 R@1 > .922 (OpenAI)", f"{first:.3f}", first > 0.922))
    return found


def _gate(gates: Sequence[Gate]) -> list[Goal]:
    found = []
    for way in (WORDS, BOTH):
        shares = [one.refused_away for one in gates if one.way == way]
        if shares:
            share = mean(shares)
            goal = f"{way}: mostly nothing is found when the right server is away (mean of sets)"
            found.append(Goal(goal, f"{share:.0%}", share > 0.5))
    return found


def _cost(measured: Measured) -> list[Goal]:
    found = []
    for one in measured.scales:
        if one.tools != 10_000:
            continue
        most = 2.0 if one.way == WORDS else 10.0
        text = f"{one.way}: under {most:g} ms a question at 10,000 tools (p50)"
        found.append(Goal(text, f"{one.wall_p50_ms:.2f} ms", one.wall_p50_ms < most))
        text = f"{one.way}: one changed server indexed again in under 50 ms at 10,000 tools"
        found.append(Goal(text, f"{one.reindex_ms:.1f} ms", one.reindex_ms < 50))
    for reply in measured.replies:
        if reply.detail == "brief":
            text = f"{reply.way}: p95 of a reply under 1,500 tokens at {reply.tools} tools"
            found.append(Goal(text, f"{reply.tokens_p95:,.0f}", reply.tokens_p95 < 1500))
    return found
