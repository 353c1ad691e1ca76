"""Aligned text tables."""

from collections.abc import Sequence


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their header, first column to the left and figures to the right."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([f"\n{title}", _line(header, widths), rule, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def figure(value: float | None) -> str:
    """Three significant figures, thousands grouped, without exponent."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
