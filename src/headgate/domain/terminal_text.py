"""Lays out plain text for a terminal: tables, wrapped lines, display width."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

_GAP: Final = "  "
_NARROWEST: Final = 10
_CUT: Final = ".."

Row = Sequence[str]


def table_lines(head: Row, rows: Sequence[Row], width: int) -> list[str]:
    """The lines of a table no wider than `width`: numbers to the right, the last column wrapped."""
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = _widths(cells, width)
    numeric = [all(_is_number(row[place]) for row in cells[1:]) for place in range(len(head))]
    return [line for row in cells for line in _lines(row, widths, numeric)]


def printable(text: str) -> str:
    """The text on one line; what a terminal would obey is replaced."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def wrap_text(text: str, width: int) -> list[str]:
    """The words of a text in lines no wider than `width`; a letter fits in any."""
    width = max(1, width)
    lines = [""]
    for word in text.split():
        for part in _parts(word, width):
            longer = f"{lines[-1]} {part}" if lines[-1] else part
            if display_width(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines


def _parts(word: str, width: int) -> Iterator[str]:
    """The word, cut where it is wider than a line."""
    while display_width(word) > width:
        part = cut_to_width(word, width)
        yield part
        word = word[len(part) :]
    yield word


def cut_to_width(text: str, width: int) -> str:
    """As much of the text as fits, and at least one letter."""
    end = len(text)
    while end > 1 and display_width(text[:end]) > width:
        end -= 1
    return text[:end]


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(letter) for letter in text)


def _character_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _widths(cells: Sequence[Row], width: int) -> list[int]:
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    room = width - len(_GAP) * len(widths)
    # The widest gives way, again and again; a name loses letters, the last column gets more lines.
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _is_number(cell: str) -> bool:
    return cell.replace(".", "").isdigit() or cell == "-"


def _lines(row: Row, widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    begin = _GAP
    for cell, width, right in zip(row[:-1], widths[:-1], numeric[:-1], strict=True):
        cut = cell if display_width(cell) <= width else cut_to_width(cell, width - len(_CUT)) + _CUT
        room = " " * (width - display_width(cut))
        begin += (room + cut if right else cut + room) + _GAP
    last = [row[-1].rjust(widths[-1])] if numeric[-1] else wrap_text(row[-1], widths[-1])
    lines = [begin + last[0], *(" " * display_width(begin) + more for more in last[1:])]
    return [line.rstrip() for line in lines]
