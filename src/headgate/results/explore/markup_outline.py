"""The outline of XML and HTML: elements by path, with counts, attributes, sizes and samples."""

import html
import re
from collections import Counter
from typing import Any, Final
from xml.parsers import expat

import msgspec

from headgate.results.content import character_count
from headgate.results.explore.outline_tree import MOST_NODES, OutlineNode, OutlineTree, render_tree, shorten

# The beginning that is parsed; in the rest elements are only counted by name. HTML costs more, because its
# parser is not written in C.
_LOOKED_AT: Final = 384 * 1024
_LOOKED_AT_HTML: Final = 128 * 1024
_DEEPEST: Final = 64
_MOST_HEADINGS: Final = 30
_MOST_NAMES: Final = 25
# How many elements at one path have their attributes read.
_SAMPLED: Final = 50
_TAG_NAME: Final = re.compile(rb"<([A-Za-z_][\w:.-]{0,100})")
_CDATA: Final = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|$)", re.DOTALL)
_MARKUP: Final = re.compile(r"<[^<>]{0,2000}>")
_VOID: Final = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_RAW: Final = frozenset(("script", "style", "textarea", "title"))
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
# Start tags that close an open element.
_ENDS: Final = {
    "li": {"li"},
    "p": {"p"},
    "tr": {"tr", "td", "th"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "option": {"option"},
}
# A value in quotes has no `<`, so that unclosed quotes cost no more than one look at each character.
_HTML_TAG: Final = re.compile(
    r"<(?:!--(?P<comment>)|(?P<end>/?)(?P<name>[a-zA-Z][^\s/><]{0,100}+)"
    r"(?P<attributes>(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+)[^<>]*+>)"
)
_ATTRIBUTE: Final = re.compile(r"([^\s=\"'/>]{1,100}+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
# Root elements that other kinds of XML hardly have.
_HTML_NAME: Final = re.compile(
    r"article|aside|blockquote|body|br|div|dl|fieldset|figure|footer|h[1-6]|head|header|hr|html|iframe|img|li|main"
    r"|nav|ol|p|pre|script|section|span|strong|style|t(?:able|body|d|head|r)|ul",
    re.IGNORECASE,
)
_FIRST_TAG: Final = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)*<([A-Za-z][\w-]*)", re.DOTALL)


class MalformedMarkup(Exception):
    """Malformed XML; the message says where and why."""


def is_html_fragment(data: bytes) -> bool:
    """Whether the first tag is one of HTML."""
    first = _FIRST_TAG.match(data)
    return first is not None and _HTML_NAME.fullmatch(first[1].decode()) is not None


def outline_xml(data: bytes, tokens: int, max_depth: int, room: int) -> dict[str, Any]:
    """The elements of XML; raises MalformedMarkup, also for XML that declares an entity."""
    reader = _XmlReader(data)
    reader.read()
    names = _ElementCounts(reader.root, data, _LOOKED_AT)
    tree = OutlineTree(reader.root, _path, tokens / max(len(data), 1), names.scale, b"\n" in data)
    return names.partly | {"outline": render_tree(tree, max_depth, room)}


class _ElementCounts:
    """The frequency of each element, in the parsed part and in the whole."""

    def __init__(self, root: OutlineNode, data: bytes, parsed: int) -> None:
        self._known: Counter[str] = Counter()
        waiting = [root]
        while waiting:
            for name, child in waiting.pop().children.items():
                self._known[name] += child.count
                waiting.append(child)
        self.partly = {"looked_at_bytes": parsed} if len(data) > parsed else {}
        self.totals = self._known
        if self.partly:
            tags = Counter(_TAG_NAME.findall(data))
            self.totals = Counter({name.decode(): count for name, count in tags.items()})

    def scale(self, name: str) -> float:
        """The number of elements of that name for each parsed one."""
        return max(self.totals[name] / self._known[name], 1.0) if self._known[name] else 1.0


def _path(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


class _XmlReader:
    """Reads XML with expat and collects its elements."""

    def __init__(self, data: bytes) -> None:
        body = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        self._skipped = len(data) - len(body)
        self._lines_before = data[: self._skipped].count(b"\n")
        # Several elements side by side are no document, but tools return such lists.
        self._wrapper = b"" if body.startswith((b"<?xml", b"<!DOCTYPE")) else b"<_>"
        self._data = body
        self.root = OutlineNode()
        self._stack: list[OutlineNode] = [self.root]
        self._starts: list[int] = []
        self._nodes = 0
        self._parser = expat.ParserCreate("utf-8")
        self._parser.ordered_attributes = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse

    def read(self) -> None:
        """Parse the beginning, or all of a short text."""
        is_whole = len(self._data) <= _LOOKED_AT
        try:
            self._parser.Parse(self._wrapper, False)
            self._parser.Parse(self._data[:_LOOKED_AT], is_whole and not self._wrapper)
            if is_whole and self._wrapper:
                self._parser.Parse(b"</_>", True)
        except (expat.ExpatError, ValueError) as error:
            raise MalformedMarkup(str(error)) from error
        if self._wrapper:
            # The root around them is ours.
            self.root = self.root.children.get("_", self.root)

    def _refuse(self, name: str, *_: object) -> None:
        raise MalformedMarkup(f"it declares the entity {name[:50]!r}, and entities are not expanded")

    def _start(self, name: str, attributes: list[str]) -> None:
        above = self._stack[-1]
        position = self._parser.CurrentByteIndex
        if len(self._stack) > _DEEPEST or (self._nodes > MOST_NODES and name not in above.children):
            node = above
        else:
            if name not in above.children:
                self._nodes += 1
            node = above.child(name, self._parser.CurrentLineNumber - 1 + self._lines_before)
        for at in range(0, len(attributes), 2):
            if attributes[at] not in node.attributes and len(node.attributes) < _MOST_NAMES:
                node.attributes[attributes[at]] = attributes[at + 1][:200]
        self._stack.append(node)
        self._starts.append(position)

    def _end(self, _: str) -> None:
        node, start = self._stack.pop(), self._starts.pop()
        end = self._parser.CurrentByteIndex
        node.own_bytes += end - start
        if node is not self._stack[-1]:
            # The content of a child is counted there.
            self._stack[-1].own_bytes -= end - start
        if not node.sample and not node.children:
            first = start - len(self._wrapper)
            written = self._data[first : min(end - len(self._wrapper), first + 2000)]
            node.sample = _text(written.decode(errors="replace"))


def _text(element: str) -> str:
    """The text of an element without its tags, with references resolved."""
    inner = _CDATA.sub(lambda section: html.escape(section[1]), element)
    return html.unescape(_MARKUP.sub(" ", inner)).strip()[:200]


def outline_html(data: bytes, tokens: int, max_depth: int, room: int) -> dict[str, Any]:
    """The title, the headings with their lines, the frequency of each element, and the elements by path."""
    reader = _HtmlReader(data[:_LOOKED_AT_HTML].decode(errors="replace"))
    reader.read()
    names = _ElementCounts(reader.root, data, _LOOKED_AT_HTML)
    facts: dict[str, Any] = {"title": reader.title} if reader.title else {}
    facts |= names.partly | {"elements": dict(names.totals.most_common(_MOST_NAMES))}
    if reader.headings:
        facts["headings"] = reader.headings
    left = room - character_count(msgspec.json.encode(facts))
    # The depth begins at the element with the content.
    page = reader.root.children.get("html", reader.root)
    body = page.children.get("body", page)
    tree = OutlineTree(body, _path, tokens / max(len(data), 1), names.scale, b"\n" in data)
    return facts | {"outline": render_tree(tree, max_depth, left)}


class _HtmlReader:
    """Reads HTML tolerantly: unclosed tags, and closing tags without an element."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.root = OutlineNode()
        self.title = ""
        self.headings: list[dict[str, Any]] = []
        self._stack: list[tuple[str, OutlineNode, int]] = []
        self._line = 0
        self._counted_to = 0
        self._nodes = 0

    def read(self) -> None:
        position = 0
        while (tag := _HTML_TAG.search(self._text, position)) is not None:
            position = tag.end()
            if tag["name"] is None:
                end = self._text.find("-->", position)
                position = len(self._text) if end < 0 else end + 3
                continue
            name = tag["name"].lower()
            if tag["end"]:
                if any(name == one for one, _, _ in self._stack[-_DEEPEST:]):
                    while self._pop(tag.end()) != name:
                        pass
                continue
            self._open(name, tag)
            if name in _RAW:
                position = self._raw_end(name, position)
        while self._stack:
            self._pop(len(self._text))

    def _raw_end(self, name: str, position: int) -> int:
        """The end of the text of an element that has no tags inside."""
        found = re.compile(f"</{name}", re.IGNORECASE).search(self._text, position)
        end = len(self._text) if found is None else found.start()
        if name == "title" and not self.title:
            self.title = shorten(html.unescape(self._text[position:end]), 120)
        return end

    def _open(self, name: str, tag: re.Match[str]) -> None:
        ends = _ENDS.get(name, ())
        while self._stack and self._stack[-1][0] in ends:
            self._pop(tag.start())
        above = self._stack[-1][1] if self._stack else self.root
        self._line += self._text.count("\n", self._counted_to, tag.start())
        self._counted_to = tag.start()
        if len(self._stack) > _DEEPEST or (self._nodes > MOST_NODES and name not in above.children):
            node = above
        else:
            self._nodes += name not in above.children
            node = above.child(name, self._line)
            if node.count <= _SAMPLED and len(node.attributes) < _MOST_NAMES:
                for found in _ATTRIBUTE.finditer(tag["attributes"][:2000]):
                    value = found[2] or found[3] or found[4] or ""
                    node.attributes.setdefault(found[1].lower(), html.unescape(value)[:200])
        if name in _VOID or tag["attributes"].endswith("/"):
            node.own_bytes += tag.end() - tag.start()
        else:
            self._stack.append((name, node, tag.start()))
        if name in _HEADINGS and len(self.headings) < _MOST_HEADINGS:
            end = self._text.find(f"</{name}", tag.end(), tag.end() + 2000)
            if end >= 0:
                words = shorten(html.unescape(_MARKUP.sub("", self._text[tag.end() : end])), 80)
                self.headings.append({"offset": self._line, "heading": f"{name} {words}"})

    def _pop(self, end: int) -> str:
        name, node, start = self._stack.pop()
        above = self._stack[-1][1] if self._stack else self.root
        node.own_bytes += end - start
        if node is not above:
            above.own_bytes -= end - start
        if not node.sample and not node.children:
            node.sample = _text(self._text[start : min(end, start + 2000)])
        return name
