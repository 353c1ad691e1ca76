"""Text of a DOCX that its writer has hidden: nobody who opens or prints the document sees it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from docx.document import Document
from docx.oxml.ns import qn

from headgate.knowledge.readers.limits import MOST_STYLES

_RUN: Final = qn("w:r")
_ROW: Final = qn("w:tr")
_HIDDEN: Final = qn("w:hidden")
_PARAGRAPH: Final = qn("w:p")
_VANISH: Final = qn("w:vanish")
_VALUE: Final = qn("w:val")
_OFF: Final = frozenset(["0", "false", "off"])


def remove_hidden_text(document: Document) -> None:
    """Take runs and rows of tables that are hidden out of the document."""
    hiding = _hiding_styles(document)
    # Each once: a careless program says twice of a run that it is hidden.
    for hidden in dict.fromkeys(_hidden(document.element.body, hiding)):
        hidden.getparent().remove(hidden)


def _hidden(body: Any, hiding: Mapping[str | None, bool]) -> Iterator[Any]:
    for mark in body.iter(_HIDDEN):
        row = mark.getparent().getparent()
        if row.tag == _ROW and _is_on(mark):
            yield row
    if any(hiding.values()):
        yield from (run for run in body.iter(_RUN) if _is_hidden(run, hiding))
    else:
        # Most documents: to ask each of their runs would take longer than to read them.
        runs = (mark.getparent().getparent() for mark in body.iter(_VANISH) if _is_on(mark))
        yield from (run for run in runs if run.tag == _RUN)


def _hiding_styles(document: Document) -> dict[str | None, bool]:
    """Of each style whether it hides text; None is the one that paragraphs have which name none."""
    styles = {style.get(qn("w:styleId")): style for style in document.styles.element.iter(qn("w:style"))}
    hiding: dict[str | None, bool] = {name: _hides(style, styles) for name, style in styles.items()}
    for name, style in styles.items():
        if style.get(qn("w:type")) == "paragraph" and style.get(qn("w:default")) not in (None, *_OFF):
            hiding[None] = hiding[name]
    return hiding


def _hides(style: Any, styles: Mapping[str | None, Any]) -> bool:
    """By itself, or else as the one that it is made from."""
    for _ in range(MOST_STYLES):
        if style is None:
            break
        said = _flag_value(style, "w:rPr", "w:vanish")
        if said is not None:
            return said
        style = styles.get(_named(style, "w:basedOn"))
    return False


def _is_hidden(run: Any, hiding: Mapping[str | None, bool]) -> bool:
    said = _flag_value(run, "w:rPr", "w:vanish")
    if said is not None:
        return said
    paragraph = next(run.iterancestors(_PARAGRAPH), None)
    outer = hiding.get(_named(paragraph, "w:pPr", "w:pStyle"), False)
    inner = _named(run, "w:rPr", "w:rStyle")
    # A style inside of another that hides too shows the text again: this is how Word reads it.
    return outer != (inner is not None and hiding.get(inner, False))


def _flag_value(element: Any, *path: str) -> bool | None:
    """Whether something is switched on there, or None when nothing is said of it."""
    found = element.find("/".join(map(qn, path)))
    return None if found is None else _is_on(found)


def _is_on(mark: Any) -> bool:
    return mark.get(_VALUE) not in _OFF


def _named(element: Any, *path: str) -> str | None:
    found = None if element is None else element.find("/".join(map(qn, path)))
    return None if found is None else found.get(_VALUE)
