"""The values that were filled into the form of a PDF, page by page."""

import logging
from collections.abc import Iterator
from typing import Any, Final

from pypdf import PageObject, PdfReader
from pypdf.constants import FieldDictionaryAttributes as Key

from headgate.documents.limits import MOST_DEPTH
from headgate.documents.text import clean, one_line

log = logging.getLogger("headgate.documents")

# Bits of a field's flags: a value that is typed unseen, and a button that only starts something.
_PASSWORD: Final = 1 << 13
_PUSH_BUTTON: Final = 1 << 16
_OFF: Final = "/Off"


def form_values(reader: PdfReader) -> dict[int, list[str]]:
    """The fields that have a value as lines of `name: value`, by the number of their page from 0."""
    if "/AcroForm" not in reader.root_object:
        return {}
    told: set[str] = set()
    return {
        number: lines
        for number, page in enumerate(reader.pages)
        if (lines := list(_lines_of(number, page, told)))
    }


def _lines_of(number: int, page: PageObject, told: set[str]) -> Iterator[str]:
    """A field that stands in several places, as a radio button does, is told at the first."""
    try:
        for annotation in page.get("/Annots") or ():
            line = _line(_inherited(annotation.get_object()))
            if line and line not in told:
                told.add(line)
                yield line
    except Exception as error:  # noqa: BLE001 (the text of the page is there all the same)
        log.warning("the form on page %d cannot be read (%s)", number + 1, type(error).__name__)


def _inherited(widget: Any) -> dict[str, Any]:
    """What the widget and the fields above it say; the nearest counts, and the names are joined."""
    said: dict[str, Any] = {}
    names: list[str] = []
    field = widget
    for _ in range(MOST_DEPTH):
        if field.get(Key.T):
            names.insert(0, str(field[Key.T]))
        for key in ("/Subtype", Key.FT, Key.Ff, Key.V, Key.TU):
            if key in field and key not in said:
                said[key] = field[key]
        parent = field.get(Key.Parent)
        if parent is None:
            break
        field = parent.get_object()
    return said | {Key.T: ".".join(names)}


def _line(field: dict[str, Any]) -> str:
    """Empty for what is no field, has no value, or has one that is not for reading."""
    if field.get("/Subtype") != "/Widget":
        return ""
    kind, flags = field.get(Key.FT), int(field.get(Key.Ff, 0))
    hidden = (kind == "/Tx" and flags & _PASSWORD) or (kind == "/Btn" and flags & _PUSH_BUTTON)
    if kind not in ("/Tx", "/Ch", "/Btn") or hidden:
        return ""
    value = _value(field.get(Key.V), is_button=kind == "/Btn")
    name = one_line(clean(str(field.get(Key.TU) or field[Key.T])))
    return f"{name}: {value}" if name and value else value


def _value(value: Any, *, is_button: bool) -> str:
    """A text, a choice, several choices, or the state of a button."""
    value = value.get_object() if hasattr(value, "get_object") else value
    if value is None or (is_button and value == _OFF):
        return ""
    if isinstance(value, list):
        return ", ".join(filter(None, (_value(one, is_button=False) for one in value)))
    if hasattr(value, "get_data"):
        value = value.get_data().decode("utf-8", "replace")
    text = clean(str(value)).strip()
    return text.removeprefix("/") if is_button else text
