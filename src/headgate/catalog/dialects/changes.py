"""What was changed in one schema, in lines that an operator can read."""

from typing import Final

_MOST_LINES: Final = 50
_LONGEST_PLACE: Final = 160
_LONGEST_LINE: Final = 300


class Changes:
    """Collects the lines; beyond the first few only their number is kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def add(self, where: str, what: str) -> None:
        """One change at one place."""
        self._count += 1
        if len(self._lines) < _MOST_LINES:
            self._lines.append(f"{_cut(where, _LONGEST_PLACE)}: {_cut(what, _LONGEST_LINE)}")

    def lines(self) -> tuple[str, ...]:
        """All of them, or the first ones and how many there are beside them."""
        more = self._count - len(self._lines)
        return (*self._lines, f"and {more} more") if more else tuple(self._lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
