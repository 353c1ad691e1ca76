"""The part of a content that a path leads to, and how the paths below it are written."""

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from headgate.responses.content import Content, InMemory, Scratch
from headgate.responses.paths import EVERY, Path, each, entered, index_of, parse, part, spelled
from headgate.responses.processors.lines import JsonLines, json_lines


class Place(msgspec.Struct, frozen=True):
    """A part of a content."""

    value: Content
    path: str
    # Whether it is an array made of all that the path leads to, so that the path is the one of its elements.
    gathered: bool

    @property
    def element_path(self) -> str:
        """The path of each of its elements, if it is an array."""
        return self.path if self.gathered else each(self.path)

    def index_path(self, index: int) -> str | None:
        """The path of one of its elements, if it is an array and one can be written."""
        return None if self.gathered else f"{self.path}[{index}]"


def place(content: Content, path: str, scratch: Scratch | None = None) -> Place:
    """Where the path leads. Raises Refused when nothing is there."""
    steps = parse(path)
    if not steps:
        return Place(content, "", gathered=False)
    lines = json_lines(content)
    if lines is not None and len(lines) > 1:
        content = (scratch or InMemory()).keep(_array(lines))
    return Place(part(content, path, scratch), spelled(steps), gathered=_is_gathered(content, steps))


def _array(lines: JsonLines) -> Iterator[bytes]:
    for at in range(len(lines)):
        yield b"," if at else b"["
        yield bytes(lines[at])
    yield b"]"


def _is_gathered(content: Content, steps: Path) -> bool:
    """Whether a step goes to every element, said or unsaid; the path is known to lead somewhere."""
    if EVERY in steps:
        return True
    value: Content | Raw = content
    for step in steps:
        held, index = entered(value), index_of(step)
        if isinstance(held, list):
            if index is None:
                return True
            value = held[index]
        elif isinstance(held, dict):
            value = held[str(step)]
    return False
