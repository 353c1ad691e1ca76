"""HTML: the visible text of a page, without scripts and navigation; its headings make sections."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from headgate.knowledge.ingestion.document_source import ParsedDocument
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import clean, codec_of, day_of, decoded, encoding_of, one_line

_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_NOTHING: Final = re.compile(r"[-+]?(?:0+(?:\.0*)?|\.0+)(?:[a-z]+|%)?")
# A number without a unit is a weight, unless it is nought, and one of degrees is how far letters lean.
_SIZE: Final = re.compile(r"smaller|larger|[-+]?0*\.?0+|[\d.+-]+(?:(?!deg|g?rad|turn)[a-z]+|%)")
# Sizes that are a share of the size around them: a share of nothing is nothing.
_SHARE: Final = re.compile(r"(?:smaller|larger|inherit|unset|[\d.+-]+(?:em|ex|ch|%))")


class StyleVisibility(NamedTuple):
    """The visibility of an element's content; a nested element may be visible again."""

    is_visible: bool = True
    has_size: bool = True


def visibility_of(style: str, around: StyleVisibility) -> StyleVisibility | None:
    """How an element with this style looks in one that looks like `around`; None when all of it is unseen."""
    declarations = _declared(style)
    if (
        declarations.get("display") == "none"
        or declarations.get("content-visibility") == "hidden"
        or _NOTHING.fullmatch(declarations.get("opacity", ""))
    ):
        return None
    is_visible, has_size = around
    visibility = declarations.get("visibility", "inherit")
    size = declarations.get("font-size", "inherit")
    if visibility in ("hidden", "collapse"):
        is_visible = False
    elif visibility in ("visible", "initial"):
        is_visible = True
    if _NOTHING.fullmatch(size):
        has_size = False
    elif not _SHARE.fullmatch(size):
        has_size = True
    return StyleVisibility(is_visible, has_size)


def _declared(style: str) -> dict[str, str]:
    """The values by their names; the last one counts, unless another is important."""
    usual: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in _COMMENT.sub("", style).lower().split(";"):
        name, _, rest = declaration.partition(":")
        value, _, mark = rest.partition("!")
        name, value = name.strip(), value.strip()
        if name == "font":
            # The size in a combined property, as in `bold 12px/1.5 serif`.
            words = value.replace("/", " / ").split()
            name, value = "font-size", next(filter(_SIZE.fullmatch, words), value)
        (important if mark.strip() == "important" else usual)[name] = value
    return usual | important


# The content of audio, video, noframes and noembed is a fallback.
_UNSEEN_TAGS: Final = """
    audio button canvas datalist dialog head iframe math nav noembed noframes noscript object script select
    style svg template video
    """
_UNSEEN: Final = frozenset(_UNSEEN_TAGS.split())
# Roles that any element may have.
_UNSEEN_ROLES: Final = frozenset(["navigation", "contentinfo"])
# In these a footer is part of the content; elsewhere it is the same on each page.
_PARTS: Final = frozenset(["article", "aside", "blockquote", "details", "figure", "main", "section", "td"])
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_INLINE_TAGS: Final = """
    a abbr acronym area b bdi bdo big blink cite code data del dfn em font i ins kbd label link map mark meta
    meter nobr output picture progress q rb rp rt rtc ruby s samp slot small source span strike strong sub
    sup time tt u var wbr
    """
_INLINE: Final = frozenset(_INLINE_TAGS.split())
# They separate the words around them.
_BETWEEN_WORDS: Final = {"br": "\n", "img": " ", "input": " "}
_CELLS: Final = frozenset(["td", "th", "caption"])
_ANY_HEADING: Final = ", ".join(_HEADINGS)
_DATES: Final = (
    ('meta[property="article:modified_time"]', "content"),
    ('meta[property="article:published_time"]', "content"),
    ('meta[name="date" i]', "content"),
    ('meta[name="dcterms.date" i]', "content"),
    ('meta[name="dc.date" i]', "content"),
    ('meta[name="last-modified" i]', "content"),
    ("time[datetime]", "datetime"),
)
_DEEPEST_LIST: Final = 10
_CHARSET: Final = re.compile(rb"charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_SPACES: Final = re.compile(r"[ \t\n\r\f]+")


def parse(content: bytes) -> ParsedDocument:
    page = LexborHTMLParser(_text(content))
    builder = SectionBuilder()
    reader = _HtmlDocumentReader(builder)
    if page.body is not None:
        reader.read(page.body)
    title = page.css_first("head title")
    return ParsedDocument(
        sections=builder.sections(),
        doc_type="html",
        title=(one_line(clean(title.text())) if title is not None else "") or reader.title,
        date=next(filter(None, map(day_of, _dates(page))), ""),
    )


def _text(content: bytes) -> str:
    """By the encoding that the page names, unless it has a mark or is UTF-8 all the same."""
    named = _CHARSET.search(content[:2048])
    codec = codec_of(named[1].decode()) if named else None
    encoding, mark_bytes = encoding_of(content)
    # ASCII bytes may still be one of the 7-bit encodings.
    is_known = mark_bytes or (encoding == "utf-8" and not content.isascii())
    if codec is None or is_known:
        return decoded(content)
    # One character that is wrong does not make all others mean something else.
    text = content.decode(codec, "replace")
    # Unless all are: pages that call themselves UTF-8 may be written in what their editor had.
    is_wrong = codec == "utf-8" and text.replace("\ufffd", "").isascii()
    return decoded(content) if is_wrong else clean(text)


def _dates(page: LexborHTMLParser) -> Iterator[str]:
    for selector, attribute in _DATES:
        if (node := page.css_first(selector)) is not None:
            yield node.attributes.get(attribute) or ""


class _HtmlDocumentReader:
    """Walks through a page without recursion: a hostile one is nested a hundred thousand times."""

    def __init__(self, builder: SectionBuilder) -> None:
        # The first heading of the first level.
        self.title = ""
        self._builder = builder
        self._line: list[str] = []
        self._cells: list[str] | None = None
        self._rows: list[str] = []
        self._lists = 0
        self._parts = 0
        # A list item has begun, and has no text yet.
        self._item = False
        self._verbatim = 0

    def read(self, body: LexborNode) -> None:
        # Each with how it looks where it stands; None for one that is left. The body itself may be hidden
        # until a script has run, but is never meant to stay so.
        stack: list[tuple[LexborNode, StyleVisibility | None]] = []
        stack.extend((child, StyleVisibility()) for child in _children_backwards(body))
        while stack:
            node, around = stack.pop()
            if around is None:
                self._leave(node)
            elif node.is_text_node:
                if around.is_visible and around.has_size:
                    text = node.text_content or ""
                    self._line.append(text if self._verbatim else _SPACES.sub(" ", text))
            elif node.is_element_node:
                look = _node_visibility(node, around)
                if look is not None and self._enter(node):
                    stack.append((node, None))
                    stack.extend((child, look) for child in _children_backwards(node))
        self._break()

    def _enter(self, node: LexborNode) -> bool:
        tag = node.tag or ""
        if tag in _UNSEEN or (tag == "footer" and not self._parts):
            return False
        if tag in _BETWEEN_WORDS:
            self._line.append(_BETWEEN_WORDS[tag])
            return False
        if tag == "table" and self._cells is None and not _is_layout(node):
            self._break()
            self._cells, self._rows = [], []
        elif self._cells is None and not _is_inline(tag):
            self._break()
        self._parts += tag in _PARTS
        self._lists += tag in ("ul", "ol")
        self._verbatim += tag == "pre"
        self._item = self._item or tag == "li"
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._cells is not None:
            self._leave_in_table(tag)
        elif tag in _HEADINGS:
            heading = self._flush_line()
            self._builder.add_heading(_HEADINGS[tag], heading)
            if tag == "h1":
                self.title = self.title or one_line(clean(heading))
        elif tag == "pre":
            text = "".join(self._line).strip("\n")
            self._line = []
            self._builder.add_paragraph(f"```\n{text}\n```" if text.strip() else "")
        elif not _is_inline(tag):
            self._break()
        self._parts -= tag in _PARTS
        self._lists -= tag in ("ul", "ol")
        self._item = self._item and tag != "li"
        self._verbatim -= tag == "pre"

    def _leave_in_table(self, tag: str) -> None:
        assert self._cells is not None
        if tag in ("td", "th"):
            self._cells.append(one_line(self._flush_line()))
        elif tag in ("tr", "caption"):
            row = " | ".join([*self._cells, *filter(None, [one_line(self._flush_line())])])
            self._rows.append(row)
            self._cells = []
        elif tag == "table":
            self._builder.add_paragraph("\n".join(row for row in self._rows if row.strip(" |")))
            self._cells = None
        elif not _is_inline(tag):
            self._line.append(" ")

    def _break(self) -> None:
        text = self._flush_line()
        if text and self._item:
            self._builder.add_item("  " * (min(self._lists, _DEEPEST_LIST) - 1) + f"- {text}")
            self._item = False
        else:
            self._builder.add_paragraph(text)

    def _flush_line(self) -> str:
        text = "".join(self._line)
        self._line = []
        if self._verbatim:
            return text
        lines = (one_line(line) for line in text.split("\n"))
        return "\n".join(line for line in lines if line)


def _node_visibility(node: LexborNode, around: StyleVisibility) -> StyleVisibility | None:
    """The style of an element's content; None when it is hidden, or not part of the page's content."""
    attributes = node.attributes
    if "hidden" in attributes or (attributes.get("aria-hidden") or "").lower() == "true":
        return None
    if (attributes.get("role") or "").strip().lower() in _UNSEEN_ROLES:
        return None
    style = attributes.get("style")
    return visibility_of(style, around) if style else around


def _is_layout(table: LexborNode) -> bool:
    """Whether it is there only for the looks."""
    if any(node.mem_id != table.mem_id for node in table.css("table")):
        return True
    for heading in table.css(_ANY_HEADING):
        above = heading.parent
        while above is not None and above.tag not in _CELLS:
            above = above.parent
        # Above a table or a column a heading is its name.
        if above is not None and above.tag == "td":
            return True
    return False


def _is_inline(tag: str) -> bool:
    # A name with a hyphen is one that the page itself has given, and what is unknown does not cut a line.
    return tag in _INLINE or "-" in tag


def _children_backwards(node: LexborNode) -> Iterator[LexborNode]:
    child = node.last_child
    while child is not None:
        yield child
        child = child.prev
