"""Describes the structure of a content: JSON by path, text by its detected format."""

import re
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    TextChunks,
    character_count,
    decode_raw,
    first_byte,
    first_text,
    is_json,
    json_lines,
    string_text_chunks,
    text_chunks,
)
from headgate.results.delimited_text import detect_delimited_lines
from headgate.results.embedded_json import MainJson, main_json_or_count
from headgate.results.explore.json_outline import OutlineBranch, json_type, outline_json, sample_values
from headgate.results.explore.markup_outline import (
    MalformedMarkup,
    is_html_fragment,
    outline_html,
    outline_xml,
)
from headgate.results.explore.yaml_outline import looks_like_yaml, outline_yaml
from headgate.results.jobs import ExploreParams
from headgate.results.json_paths import PathTarget, resolve_path
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.result_structure import decode_text
from headgate.results.token_estimate import estimate_tokens

# At most so many texts are described one by one.
_FEW_BLOCKS = 8
# Characters around the description of a text: its path and commas.
_OVERHEAD = 60
_HEAD_CHARACTERS = 200

_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*\n?|^[ \t\r]*\n", re.MULTILINE)


class ExploreProcessor:
    """Outlines a content, or the part at a path."""

    name = "explore"

    def __init__(self, scratch: Scratch | None = None) -> None:
        """`scratch` keeps the part at a path."""
        self._scratch = scratch

    def process(self, content: Content, params: ExploreParams) -> ProcessorResult:
        """A JSON object that fits the room. Raises ProcessingError when nothing is at the path."""
        where = resolve_path(content, params.path, self._scratch)
        facts: dict[str, Any] = {"path": where.path} if where.path else {}
        root = _lines_root(where, facts) or _json_root(where) or self._embedded_root(where, facts)
        if root is not None:
            made, depth = outline_json(root, facts, params.max_depth, params.room)
            return processed(content, made, {"type": "json", "depth": depth})
        texts = string_text_chunks(where.value) if _is_string(where) else text_chunks(where.value)
        facts["tokens"] = estimate_tokens(where.value)
        made = outline_text(texts, facts, params.max_depth, params.room)
        return processed(content, made, {"type": "text"})

    def _embedded_root(self, where: PathTarget, facts: dict[str, Any]) -> OutlineBranch | None:
        """The JSON of a text that has little else in it; any other text gets a hint at the JSON in it."""
        is_string, text = _is_string(where), where.value
        if is_string:
            text = decode_text(Raw(memoryview(where.value)), self._scratch or MemoryScratch())
        facts["type"] = "string" if is_string else "text"
        main, mentioned = main_json_or_count(text, self._scratch)
        if mentioned:
            first = f"{where.path}[0]" if mentioned > 1 else where.path or "$"
            facts["json_inside"] = f"paths open it, from {first} on"
        if main is None and is_string and is_json(text):
            main = MainJson(text, b"")
        if main is None:
            return None
        value = Raw(memoryview(main.content))
        facts["holds"] = json_type(value)
        head = _FENCE.sub("", main.around.decode(errors="replace")).strip()
        if head:
            facts["head"] = head[:_HEAD_CHARACTERS]
        return OutlineBranch(where.path, [value])


def explore_blocks(
    blocks: Content, count: int, params: ExploreParams, scratch: Scratch
) -> tuple[list[bytes], dict[str, Any]]:
    """The outlines of several texts, given as one array; for very many, one common outline."""
    explorer = ExploreProcessor(scratch)
    if count <= _FEW_BLOCKS:
        paths: dict[str, Any] = {}
        room = (params.room - _OVERHEAD) // count
        for index in range(count):
            part = msgspec.structs.replace(params, path=f"[{index}]", room=room - _OVERHEAD)
            facts = msgspec.json.decode(explorer.process(blocks, part).content[:], type=dict[str, Raw])
            below = msgspec.json.decode(facts.pop("paths", b"{}"), type=dict[str, Raw])
            path = msgspec.json.decode(facts.pop("path", Raw(b'""')), type=str) or part.path
            paths |= {path: facts} | below
        details = msgspec.json.encode(
            {"type": "texts", "count": count, "tokens": estimate_tokens(blocks), "paths": paths}
        )
        if character_count(details) <= params.room:
            return [details], {"explore": {"type": "json", "depth": params.max_depth}}
    made = explorer.process(blocks, params)
    return [made.content[:]], {"explore": dict(made.metadata)}


def _lines_root(where: PathTarget, facts: dict[str, Any]) -> OutlineBranch | None:
    """The objects of JSON Lines, outlined as if they were one object."""
    lines = None if where.path else json_lines(where.value)
    if lines is None or len(lines) < 2:
        return None
    sample = sample_values(lines)
    facts |= {"type": "json lines", "count": len(lines), "of": "object"}
    if len(sample) < len(lines):
        facts["looked_at"] = len(sample)
    return OutlineBranch("", sample, weight=len(lines) / len(sample))


def _json_root(where: PathTarget) -> OutlineBranch | None:
    """The value, unless it is text, a string, or an object whose keys are no UTF-8."""
    opening = first_byte(where.value)
    if opening == b'"' or not (where.path or opening in (b"{", b"[")):
        return None
    try:
        value = decode_raw(where.value)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    root = OutlineBranch(where.path, [value], element_path=where.element_path)
    return None if opening == b"{" and root.is_undecodable else root


def _is_string(where: PathTarget) -> bool:
    return bool(where.path) and first_byte(where.value) == b'"'


_HEAD = 300
# The beginning that format detection reads.
_PROBE = 64 * 1024
_PROBED_LINES = 200
_MOST_HEADINGS = 50
_MOST_COLUMNS = 100
_LONGEST_NAME = 80
# Formats with a structure of their own, and how many of their characters are parsed.
_STRUCTURED = ("xml", "html", "yaml")
_MOST_STRUCTURED = 16 * 1024 * 1024
_MARGIN = 100
# A list or head that is not longer is omitted rather than truncated.
_SHORT = 10

# White space becomes a space and anything else a letter, so that words can be counted in bulk.
_WORDS = bytes(ord(" ") if byte in b" \t\n\r\v\f" else ord("x") for byte in range(256))
_LEVELS = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")
_LEVEL = re.compile(rf"(?<![\w-])({'|'.join(_LEVELS + tuple(map(str.lower, _LEVELS)))})(?![\w-])")
_TIME = re.compile(r"\W?(\d{4}-\d\d-\d\d|\d\d\d\d/\d\d/\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:)")
_STAMP = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d"
)
# Colours and cursor movements of a terminal, and titles of its window.
_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_HEADING = re.compile(r"^(?:(#{1,6}) +(\S.*)|```.*|~~~.*)$", re.MULTILINE)
_XML = re.compile(r"\ufeff?\s*<(?:\?xml\b|!--|!DOCTYPE\b|[A-Za-z_][\w:.-]*[\s/>])")
_HTML = re.compile(r"\ufeff?\s*(?:<!doctype html|<html)\b", re.IGNORECASE)


def outline_text(texts: TextChunks, facts: dict[str, Any], max_depth: int, room: int) -> bytes:
    """A JSON object of the facts and the description of the text, reduced until it fits."""
    start = first_text(texts(), _PROBE)
    described = facts | _text_sizes(texts())
    if "\x1b[" in start:
        described["ansi_codes"] = True
        start, coded = _CODE.sub("", start), texts
        texts = lambda: (_CODE.sub("", text) for text in coded())  # noqa: E731
    looks_like, details = _detect_format(start, texts)
    if looks_like:
        described["looks_like"] = looks_like
    if looks_like != "binary":
        described["head"] = _head(start)
    if looks_like in _STRUCTURED:
        left = room - character_count(msgspec.json.encode(described)) - _MARGIN
        details = _structure(looks_like, texts, facts.get("tokens", 0), max_depth, left)
    return _fit(described | details, room)


def _structure(looks_like: str, texts: TextChunks, tokens: int, max_depth: int, room: int) -> dict[str, Any]:
    """The outline of XML, HTML or YAML; for malformed XML the reason."""
    text = first_text(texts(), _MOST_STRUCTURED)
    if looks_like == "yaml":
        return outline_yaml(text, tokens, max_depth, room)
    data = text.encode(errors="replace")
    if looks_like == "html":
        return outline_html(data, tokens, max_depth, room)
    try:
        return outline_xml(data, tokens, max_depth, room)
    except MalformedMarkup as broken:
        return {"broken": str(broken)}


def _head(start: str) -> str:
    """The first lines, or the beginning of a long first line."""
    if len(start) <= _HEAD:
        return start.rstrip("\r\n")
    lines, line_end, _ = start[: _HEAD + 1].rpartition("\n")
    return lines.rstrip("\r\n") if line_end and lines.strip() else start[:_HEAD]


def _text_sizes(texts: Iterator[str]) -> dict[str, int]:
    size = words = ends = longest = begun = 0
    before = "\n"
    for text in texts:
        if not text:
            continue
        size += len(text)
        ends += text.count("\n")
        # A word, and a line, may have begun in the previous chunk.
        words += (before + text).encode(errors="replace").translate(_WORDS).count(b" x")
        first, *lines = text.split("\n")
        begun += len(first)
        longest = max(longest, begun, max(map(len, lines), default=0))
        begun = len(lines[-1]) if lines else begun
        before = text[-1]
    return {"lines": ends + (before != "\n"), "words": words, "characters": size, "longest_line": longest}


def _detect_format(start: str, texts: TextChunks) -> tuple[str | None, dict[str, Any]]:
    """The format of the text, only where it is certain, and its own facts."""
    if "\0" in start:
        return "binary", {}
    if _HTML.match(start) or (_XML.match(start) and ("</" in start or "/>" in start)):
        is_html = _HTML.match(start) or is_html_fragment(start.encode(errors="replace"))
        return "html" if is_html else "xml", {}
    whole = len(start) < _PROBE
    # Of delimited text with at least two records.
    text = start if whole else start[: start.rfind("\n") + 1]
    table = detect_delimited_lines(lambda: iter(StringIO(text, newline="\n")), fewest_records=2)
    if table is not None:
        return "csv", {"columns": list(table.names[:_MOST_COLUMNS])}
    lines = start.split("\n")
    # The first lines that are complete and not blank.
    probed = [line for line in (lines if whole else lines[:-1]) if line.strip()][:_PROBED_LINES]
    form = _level_form(probed)
    if form is not None:
        return "log", {"levels": _levels(texts(), form)} | _period(texts())
    if len(probed) > 2 and sum(bool(_TIME.match(line)) for line in probed) > len(probed) * 0.6:
        return "log", _period(texts())
    # Headings of two levels or a link; comments of a script have neither.
    marks = {found[1] for found in _HEADING.finditer(start) if found[1]}
    if len(marks) > 1 or (len(marks) == 1 and "](" in start):
        return "markdown", _headings(texts())
    return "yaml" if looks_like_yaml(start if whole else start[: start.rfind("\n")]) else None, {}


def _period(texts: Iterator[str]) -> dict[str, str]:
    """The timestamps of the first and the last line that has one."""
    first = last = ""
    tail = ""
    for text in texts:
        if not first and (found := _STAMP.search(text, 0, _PROBE)):
            first = found[0]
        tail = (tail + text)[-_HEAD * 10 :]
    for found in _STAMP.finditer(tail):
        last = found[0]
    return {"from": first, "to": last} if first and last else {}


# How a log writes its levels: the characters around them, and whether they are in lower case.
_LevelForm = tuple[str, str, bool]


def _level_form(lines: list[str]) -> _LevelForm | None:
    """How most lines of a log write their level; None where most have none."""
    forms: Counter[_LevelForm] = Counter()
    for line in lines:
        if hit := _LEVEL.search(line, 0, 120):
            before = line[hit.start() - 1] if hit.start() else "\n"
            forms[before, line[hit.end() : hit.end() + 1] or "\n", hit[0].islower()] += 1
    if len(lines) < 3 or forms.total() <= len(lines) * 0.6:
        return None
    return forms.most_common(1)[0][0]


def _levels(texts: Iterator[str], form: _LevelForm) -> dict[str, int]:
    """The frequency of each level in this form, counted without splitting lines."""
    before, behind, is_lower = form
    counts: Counter[str] = Counter()
    written = [level.lower() if is_lower else level for level in _LEVELS]
    for text in texts:
        lines = f"\n{text}"
        counts.update({level: lines.count(f"{before}{level}{behind}") for level in written})
    return {level: count for level, count in counts.most_common() if count}


def _headings(texts: Iterator[str]) -> dict[str, Any]:
    headings: list[dict[str, Any]] = []
    line = more = 0
    in_code = False
    for text in texts:
        at = 0
        for found in _HEADING.finditer(text):
            line, at = line + text.count("\n", at, found.start()), found.start()
            if found[1] is None:
                in_code = not in_code
            elif not in_code and len(headings) < _MOST_HEADINGS:
                headings.append({"offset": line, "heading": found[0].strip()[:_LONGEST_NAME]})
            elif not in_code:
                more += 1
        line += text.count("\n", at)
    return {"headings": headings} | ({"more_headings": more} if more else {})


def _fit(described: dict[str, Any], room: int) -> bytes:
    """The description, first with shorter lists and head, then with fewer members, until it fits."""
    while described:
        made = msgspec.json.encode(described)
        if character_count(made) <= room:
            return made
        lengths = {name: len(value) for name, value in described.items() if isinstance(value, str | list)}
        longest = max(lengths, key=lengths.__getitem__, default="")
        length = lengths.get(longest, 0)
        if length > _SHORT:
            described = described | {longest: described[longest][: length // 2]}
        else:
            described = dict(list(described.items())[:-1])
    return b"{}"
