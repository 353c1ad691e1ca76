"""Where in a document one is: the headings above, the outermost first."""

from headgate.documents.text import one_line


class Outline:
    """The headings that are open; a level that was left out does not matter."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    @property
    def path(self) -> tuple[str, ...]:
        """The headings above what comes now."""
        return tuple(heading for _, heading in self._open)

    def enter(self, level: int, heading: str) -> tuple[str, ...]:
        """A heading of that level begins, which ends all of the same and of deeper levels."""
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        line = one_line(heading)
        if line:
            self._open.append((level, line))
        return self.path
