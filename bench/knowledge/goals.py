"""The goals of knowledge, from the contract and from the figures of its seed."""

from typing import Final

from bench.knowledge.latency import STEPS
from bench.knowledge.measured import Measured
from bench.knowledge.quality import BM25, HYBRID, VECTOR
from bench.knowledge.scenario import saved
from bench.knowledge.tables import WANTED
from bench.retrieval.goals import Goal
from bench.tables import figure

_SAVED: Final = 0.9
_NEEDLES: Final = 0.85


def goals(measured: Measured) -> list[Goal]:
    """Those that the figures at hand allow to judge."""
    return [*_quality(measured), *_needles(measured), *_latency(measured), *_tokens(measured)]


def _quality(measured: Measured) -> list[Goal]:
    found = []
    for name in dict.fromkeys(one.labelled for one in measured.lines):
        ndcg = {one.way: one.quality.ndcg for one in measured.lines if one.labelled == name}
        best = max(ndcg[VECTOR], ndcg[BM25])
        text = f"{name}: hybrid finds better than vectors alone and BM25 alone (nDCG@10 > {best:.3f})"
        found.append(Goal(text, f"{ndcg[HYBRID]:.3f}", ndcg[HYBRID] > best))
    return found


def _needles(measured: Measured) -> list[Goal]:
    found = []
    for name in dict.fromkeys(one.labelled for one in measured.needles):
        own = [one for one in measured.needles if (one.labelled, one.way) == (name, HYBRID)]
        share = sum(one.found for one in own) / sum(one.needles for one in own)
        text = f"{name}: hybrid finds {_NEEDLES:.0%} of the exact words in the first ten"
        found.append(Goal(text, f"{share:.1%}", share >= _NEEDLES))
    return found


def _latency(measured: Measured) -> list[Goal]:
    found = []
    for step, wanted in WANTED.items():
        own = [one for one in measured.timed if one.step == step]
        slowest = max(own, key=lambda one: one.p99_ms)
        chunks = max(one.chunks for one in own)
        found.append(
            Goal(
                f"{STEPS[step]} under {wanted:g} ms up to {chunks:,} chunks, p99",
                f"at most {figure(slowest.p99_ms)} ms ({slowest.store}, {slowest.chunks:,})",
                slowest.p99_ms < wanted,
            )
        )
    return found


def _tokens(measured: Measured) -> list[Goal]:
    if not measured.spent:
        return []
    text = f"50 ids, 10 metadata, 3 full: {_SAVED:.0%} of the tokens of 50 full saved"
    return [
        Goal(f"{text}, {way}", f"{share:.1%}", share >= _SAVED)
        for way, share in saved(measured.spent).items()
    ]
