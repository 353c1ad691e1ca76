"""The outcome of a campaign as text and as JSON."""

import json
import textwrap
from pathlib import Path

from campaign.trial import Verdict

_COLUMNS = (("id", 4), ("what", 34), ("must hold", 40), ("measured", 52), ("", 4))


def render(verdicts: list[Verdict]) -> str:
    """One table: id, what, must hold, measured, pass or FAIL."""
    rule = "-+-".join("-" * width for _, width in _COLUMNS)
    lines = [_row([name for name, _ in _COLUMNS]), rule]
    for verdict in verdicts:
        measured = "; ".join(f"{name} {value}" for name, value in verdict.measured.items())
        word = "pass" if verdict.passed else "FAIL"
        cells = [verdict.case.id, verdict.case.what, verdict.case.must_hold, measured, word]
        lines += [_row(cells), rule]
    passed = sum(verdict.passed for verdict in verdicts)
    seconds = sum(verdict.seconds for verdict in verdicts)
    lines.append(f"{passed} of {len(verdicts)} cases passed in {seconds:.0f} s")
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, (_, width) in zip(cells, _COLUMNS, strict=True)]
    height = max(map(len, wrapped))
    return "\n".join(
        " | ".join(
            (lines[row] if row < len(lines) else "").ljust(width)
            for lines, (_, width) in zip(wrapped, _COLUMNS, strict=True)
        ).rstrip()
        for row in range(height)
    )


def explain(verdict: Verdict) -> str:
    """Why a case failed, with the end of the gateway's log."""
    reasons = verdict.failures or ["no result"]
    lines = [f"  {verdict.case.id} failed: {reason}" for reason in reasons]
    return "\n".join(lines + [f"      {line[:400]}" for line in verdict.log])


def write_json(verdicts: list[Verdict], path: Path) -> None:
    """Keep the outcome for machines."""
    rows = [
        {
            "id": verdict.case.id,
            "what": verdict.case.what,
            "must_hold": verdict.case.must_hold,
            "measured": verdict.measured,
            "passed": verdict.passed,
            "failures": verdict.failures,
            "seconds": round(verdict.seconds, 2),
        }
        for verdict in verdicts
    ]
    path.write_text(json.dumps(rows, indent=2) + "\n")
