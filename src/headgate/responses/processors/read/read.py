"""Pages through a content: elements of JSON, lines of anything else, or plain characters."""

from msgspec import DecodeError, Raw

from headgate.responses.content import Content, Scratch, characters, first_sign
from headgate.responses.embedded import json_in_string
from headgate.responses.params import Reading, Unit
from headgate.responses.processing import ProcessorResult, Refused, done
from headgate.responses.processors.lines import Texts, json_lines, texts_of, texts_of_string
from headgate.responses.processors.places import Place, place
from headgate.responses.processors.read.paging import value_page
from headgate.responses.processors.read.passages import Page, Slot, characters_page, lines_page


class ReadProcessor:
    """Shows a page of a content, or of the part that a path leads to."""

    name = "read"

    def __init__(self, scratch: Scratch | None = None) -> None:
        """`scratch` keeps the part that a path leads to."""
        self._scratch = scratch

    def process(self, content: Content, params: Reading) -> ProcessorResult:
        """The page and where it stands in the whole. Raises Refused for a path or unit that is not there."""
        if params.limit is not None and params.limit < 1:
            raise Refused(f"limit is {params.limit}: give at least 1, or leave it out for as much as fits.")
        read = _page(place(content, params.path, self._scratch), params)
        return done(content, read.content, read.metadata)


def page(content: Content, offset: int, room: int) -> ProcessorResult:
    """A page of what another processor made.

    It has elements of the outermost array, or of the one large array inside with the small members around
    it, or else members, or else lines. What fits as a whole is given as it is. Raises nothing.
    """
    slot = Slot(offset, None, room)
    where = Place(content, "", gathered=False)
    shown = _json_page(where, slot) or lines_page(texts_of(content), slot)
    facts = shown.metadata
    if facts["shown"] == facts["total"] and "go_on" not in facts and _fits(content, room):
        return done(content, content[:], facts)
    return done(content, shown.content, facts)


def _fits(content: Content, room: int) -> bool:
    return len(content) <= room * 4 and characters(content[:]) <= room


def _json_page(where: Place, slot: Slot) -> Page | None:
    """A page of elements or members; None of what can only be read as a text."""
    if first_sign(where.value) not in (b"{", b"["):
        return None
    try:
        return value_page(where.value, slot, where)
    except (DecodeError, RecursionError, Refused):
        # It only begins like JSON, nests too deeply, or has a key that is no UTF-8.
        return None


def _page(where: Place, params: Reading) -> Page:
    slot = Slot(params.offset, params.limit, params.room)
    texts = _texts(where)
    if params.unit is Unit.CHARACTERS:
        return characters_page(texts, slot)
    if params.unit is Unit.LINES:
        return lines_page(texts, slot)
    shown = _json_page(where, slot) or _held_page(where, slot)
    if shown is None and params.unit is Unit.ELEMENTS and not where.path and json_lines(where.value) is None:
        raise Refused("The content is no JSON, so it has no elements: read it with unit lines or characters.")
    return shown or lines_page(texts, slot)


def _held_page(where: Place, slot: Slot) -> Page | None:
    """The same of the JSON that a string holds."""
    inner = json_in_string(Raw(memoryview(where.value)), only_main=True) if where.path else None
    return None if inner is None else _json_page(Place(bytes(inner), where.path, gathered=False), slot)


def _texts(where: Place) -> Texts:
    """The text; of a string in JSON what it stands for, because that is what somebody reads."""
    is_string = where.path and first_sign(where.value) == b'"'
    return texts_of_string(where.value) if is_string else texts_of(where.value)
