"""Builds the excerpt of a result that is too large; `structuredContent` still satisfies its output schema."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.compact_tables import to_compact_tables
from headgate.results.content import (
    Content,
    character_count,
    decode_elements,
    decode_members,
    decode_raw,
    first_characters,
)
from headgate.results.explore.explore_processor import ExploreProcessor
from headgate.results.jobs import ExcerptJob, ExploreParams, JobResult, PageUnit
from headgate.results.notices import fill_placeholders, spoofed_notices
from headgate.results.parsed_result import MANY_TEXTS, ParsedResult, minify_json
from headgate.results.pipeline import ProcessingError
from headgate.results.reply import job_result, size_facts, text_block, with_notice
from headgate.results.result_structure import decode_string, top_level_members
from headgate.results.truncation import (
    TruncatedContent,
    TruncationLoss,
    element_loss,
    encoded_key,
    fair_shares,
    head_tail,
    head_tail_size,
    join_parts,
    leading_byte,
    main_loss,
    minified_if_fits,
    size_within,
    truncate_json,
    truncate_text,
    truncate_value,
    whole_content,
)
from headgate.schema.notice_compatibility import NOTICE_MEMBER
from headgate.schema.removal_rules import NOTHING_REMOVABLE, RemovalRuleIndex, RemovalRules, Schemas

# How much of the end a head-and-tail excerpt reads; a character has at most four bytes.
_TAIL_BYTES = 256
# A larger text is truncated without trying to write it as a table.
_LARGEST_TABLE = 4 * 1024 * 1024
# The share of the room for the outline of an omitted `structuredContent`; its excerpt gets the rest.
_OUTLINE_SHARE = 3
_OUTLINE_DEPTH = 2
# Characters of a notice that the upstream itself has put there, as another gateway does.
_LONGEST_UPSTREAM_NOTICE = 600


def excerpt(parsed: ParsedResult, job: ExcerptJob) -> JobResult:
    """The result with truncated texts and `structuredContent`, each with a notice where the rest is.

    Empty where the result is to be shown whole: it is within the limits, no complete tool result, of an
    unknown tool, not truncatable, or not shorter as head and tail.
    """
    structured = parsed.structure.structured
    if not parsed.structure.complete or (structured is not None and not job.tool_known):
        return JobResult()
    if parsed.size <= job.limit and (job.limit_tokens is None or parsed.tokens <= job.limit_tokens):
        return JobResult()
    texts, cuts = _text_excerpts(parsed, job)
    kept = _structured_excerpt(parsed, job)
    if not cuts and (structured is None if kept is None else kept.whole):
        return JobResult()
    added: list[TruncatedContent] = []
    if kept is None and structured is not None:
        left = max(1, min(job.room, job.limit - sum(map(character_count, texts.values()))))
        added = _structured_as_text(parsed, job, left)
    done = _ExcerptReply(parsed, job, texts, cuts, kept, added).result()
    is_shorter = done.processed_size < parsed.size and len(done.result) < parsed.size_bytes
    return done if is_shorter or job.style != "head_tail" else JobResult()


def _text_excerpts(parsed: ParsedResult, job: ExcerptJob) -> tuple[dict[int, bytes], list[TruncatedContent]]:
    if len(parsed.texts) > MANY_TEXTS:
        return _first_texts(parsed, job)
    rooms = fair_shares(list(parsed.sizes.values()), job.room)
    shown: dict[int, bytes] = {}
    cuts: list[TruncatedContent] = []
    for (index, text), room in zip(parsed.texts.items(), rooms, strict=True):
        cut = _text_excerpt(parsed, index, room, job) if parsed.sizes[index] > room else None
        if cut is None:
            shown[index] = text[:]
            continue
        shown[index] = cut.content
        cuts.append(cut)
    return shown, cuts


def _first_texts(parsed: ParsedResult, job: ExcerptJob) -> tuple[dict[int, bytes], list[TruncatedContent]]:
    """Of very many texts as many as fit, whole; the other blocks are omitted."""
    shown: dict[int, bytes] = {}
    room = job.room
    for index, text in parsed.texts.items():
        room -= parsed.sizes[index]
        if room < 0 and shown:
            break
        shown[index] = text[:]
        cut = _text_excerpt(parsed, index, room + parsed.sizes[index], job) if room < 0 else None
        if cut is not None:
            shown[index] = cut.content
    return shown, [TruncatedContent(b"", len(shown), len(parsed.texts), PageUnit.ELEMENTS, whole=False)]


def _text_excerpt(parsed: ParsedResult, index: int, room: int, job: ExcerptJob) -> TruncatedContent | None:
    """The excerpt of one text, None where it is shown whole."""
    if job.style == "head_tail":
        return _head_tail_excerpt(parsed.texts[index], parsed.sizes[index], room)
    text = parsed.compact_texts[index]
    if not parsed.json[index]:
        return truncate_text(text, room)
    if job.compact and len(text) <= _LARGEST_TABLE:
        table = to_compact_tables(text)
        most = job.limit if len(parsed.texts) == 1 else room
        if table is not None and character_count(table) <= most:
            return whole_content(table)
        text = table or text
    return _json_or_text_excerpt(text, room)


def _json_or_text_excerpt(text: Content, room: int) -> TruncatedContent:
    try:
        return truncate_json(text, room)
    except ProcessingError:
        # Only its outermost level parses.
        return truncate_text(text, room)


def _head_tail_excerpt(text: Content, size: int, room: int) -> TruncatedContent | None:
    if size <= head_tail_size(room):
        return None
    beginning = first_characters(text[: (room + 1) * 4], room + 1).decode(errors="replace")
    end = text[-_TAIL_BYTES:].decode(errors="ignore")
    # The function needs only the beginning, the end, and whether the text is longer than the room.
    shown = head_tail(beginning + end, room).encode()
    return TruncatedContent(shown, room, size, PageUnit.CHARACTERS, whole=False)


def _structured_excerpt(parsed: ParsedResult, job: ExcerptJob) -> TruncatedContent | None:
    """The part of `structuredContent` that satisfies the output schema; None for a tool without one."""
    structured = parsed.structure.structured
    if structured is None or job.output_schema is None or leading_byte(structured) != b"{":
        return None
    whole = bytes(structured)
    content = truncate_structured(whole, job.output_schema, job.room)
    loss = truncation_loss(whole, content)
    if loss is None:
        return whole_content(content)
    return TruncatedContent(content, loss.shown, loss.total, loss.unit, whole=False)


def _structured_as_text(parsed: ParsedResult, job: ExcerptJob, room: int) -> list[TruncatedContent]:
    """Texts that replace an omitted `structuredContent` which no text of the result repeats.

    The first is a part of it as JSON, the second its outline: keys, types and counts.
    """
    if parsed.texts and not parsed.text_is_summary:
        return []
    assert parsed.structure.structured is not None
    content = minify_json(bytes(parsed.structure.structured))[:]
    if job.style == "head_tail":
        cut = _head_tail_excerpt(content, parsed.structured_size, room)
        return [cut or whole_content(content)]
    cut = _json_or_text_excerpt(content, room - room // _OUTLINE_SHARE)
    params = ExploreParams(max_depth=_OUTLINE_DEPTH, room=room // _OUTLINE_SHARE)
    outline = ExploreProcessor(parsed.scratch).process(content, params).content[:]
    return [cut, whole_content(outline)]


@dataclass(frozen=True, slots=True)
class _ExcerptReply:
    """The excerpt of a result: its remaining parts, and the notice about the rest."""

    parsed: ParsedResult
    job: ExcerptJob
    texts: Mapping[int, bytes]
    cuts: list[TruncatedContent]
    structured: TruncatedContent | None
    # Texts that the result does not have itself.
    added: list[TruncatedContent]

    def result(self) -> JobResult:
        """The job's result; in the excerpt only the gateway's own notice looks like one."""
        mark_texts = spoofed_notices(self.job.message.partition("{")[0]).mark_texts
        notice = self._notice(self._shown_summary()).encode()
        members = dict(self.parsed.structure.members)
        members.setdefault("content", Raw(b"[]"))
        structured = b""
        if self.structured is None:
            members.pop("structuredContent", None)
        else:
            structured = self._with_notice(self.structured, mark_texts)
            members["structuredContent"] = Raw(structured)
        texts = [*self.texts.values(), *(cut.content for cut in self.added)]
        # The notice is read too, so the savings are net.
        facts = size_facts(self.parsed, self.job.cache_id, [*texts, notice], structured)
        blocks = [*map(mark_texts, self._blocks()), text_block(notice)]
        return job_result(members, blocks, facts, {"excerpt": facts})

    def _notice(self, shown: str) -> str:
        words = {
            "shown": shown,
            "size": f"{self.parsed.size:,}",
            "tokens": f"{self.parsed.tokens:,}",
            "cache_id": self.job.cache_id,
        }
        return fill_placeholders(self.job.message, words)

    def _shown_summary(self) -> str:
        cuts = [cut for cut in (*self.cuts, *self.added) if not cut.whole]
        if cuts:
            return " and ".join(map(_shown_of_total, cuts))
        if self.cuts:
            return "all of it, written more tightly"
        if self.structured is None:
            return "the text is whole, structuredContent is left out"
        return f"the text is whole, structuredContent is cut to {_shown_of_total(self.structured)}"

    def _with_notice(self, cut: TruncatedContent, mark_texts: Callable[[bytes], bytes]) -> bytes:
        """The `structuredContent` of the excerpt, with the notice as its first member.

        It holds the notice that the upstream itself has added, as another gateway does.
        """
        shown = "structuredContent is whole, the text beside it is cut" if cut.whole else _shown_of_total(cut)
        notice_fields: dict[str, Any] = {
            "notice": self._notice(shown),
            "cache_id": self.job.cache_id,
            "shown": cut.shown,
            "total": cut.total,
        }
        whole = self.parsed.structure.structured
        if whole is not None and b"headgate" in bytes(whole):
            upstream = top_level_members(whole).get(NOTICE_MEMBER)
            if upstream is not None:
                short = _json_or_text_excerpt(bytes(upstream), _LONGEST_UPSTREAM_NOTICE).content
                notice_fields["upstream"] = Raw(mark_texts(short))
        return with_notice(mark_texts(cut.content), notice_fields)

    def _blocks(self) -> list[bytes]:
        """The blocks with their new texts."""
        whole = self.parsed.texts
        blocks = [
            bytes(block.raw)
            if block.text is None or self.texts[index] is whole[index]
            else block.with_text(self.texts[index])
            for index, block in enumerate(self.parsed.structure.blocks)
            if block.text is None or index in self.texts
        ]
        return blocks + [text_block(cut.content) for cut in self.added]


def _shown_of_total(cut: TruncatedContent) -> str:
    return f"{cut.shown:,} of {cut.total:,} {cut.unit}"


# A deeper value is kept whole: each level is one more scan of everything below it.
_DEEPEST = 20
# So many members share the room, however little each gets; more of them only if each gets enough to read.
_FEW_MEMBERS = 32
_READABLE = 64
_KINDS = {b"{": "object", b"[": "array", b'"': "string"}


def truncate_structured(value: bytes, schema: bytes, room: int) -> bytes:
    """A part of the value within `room` characters that satisfies the schema if the value does.

    Where that is impossible, the smallest such part that is found.
    """
    try:
        decoded = decode_raw(value)
        root = msgspec.json.decode(schema)
        # In a schema with an `$id` inside, references are not relative to the root.
        understood = isinstance(root, Mapping) and schema.count(b'"$id"') <= ("$id" in root)
        if not understood or leading_byte(decoded) != b"{":
            return value
        return _StructuredTruncator(RemovalRuleIndex(root)).truncate(decoded, (root,), room, 0)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return value


def truncation_loss(whole: bytes | Raw, kept: bytes | Raw) -> TruncationLoss | None:
    """What the part lacks of the whole; None where only white space is missing."""
    with memoryview(whole) as one, memoryview(kept) as other:
        if one == other:
            return None
    match leading_byte(whole):
        case b"[":
            elements, kept_elements = decode_elements(whole), decode_elements(kept)
            if len(kept_elements) < len(elements):
                return element_loss(whole, len(kept_elements), len(elements), of_array=True)
            losses = _losses(zip(elements, kept_elements, strict=False))
            return max(losses, key=lambda loss: (loss.of_array, loss.size), default=None)
        case b"{":
            members, kept_members = decode_members(whole), decode_members(kept)
            pairs = ((members[key], value) for key, value in kept_members.items() if key in members)
            return main_loss(whole, _losses(pairs), len(kept_members), len(members))
        case b'"':
            shown, total = (len(decode_string(Raw(bytes(text)))) for text in (kept, whole))
            return TruncationLoss(False, len(memoryview(whole)), shown, total, PageUnit.CHARACTERS)
    return None


def _losses(pairs: Iterable[tuple[Raw, Raw]]) -> list[TruncationLoss]:
    return [loss for pair in pairs if (loss := truncation_loss(*pair)) is not None]


class _StructuredTruncator:
    """Truncates values to their room or, where the schema forbids that, as close to it as possible."""

    def __init__(self, rule_index: RemovalRuleIndex) -> None:
        self._rule_index = rule_index

    def truncate(self, value: Raw, schemas: Schemas, room: int, depth: int) -> bytes:
        whole = minified_if_fits(value, room)
        rules = NOTHING_REMOVABLE if whole is not None else self._rules(value, schemas, depth)
        if whole is not None or rules.fixed:
            return whole or bytes(value)
        match leading_byte(value):
            case b"[":
                return self._truncate_array(decode_elements(value), rules, room, depth)
            case b"{":
                return self._truncate_object(decode_members(value), rules, room, depth)
        # An ellipsis alone is the least that indicates an omission.
        piece = truncate_value(value, max(room, 4))
        is_long_enough = piece and len(msgspec.json.decode(piece.content, type=str)) >= rules.shortest
        return piece.content if piece and is_long_enough else bytes(value)

    def _rules(self, value: Raw, schemas: Schemas, depth: int) -> RemovalRules:
        kind = _KINDS.get(leading_byte(value))
        return (
            NOTHING_REMOVABLE if kind is None or depth > _DEEPEST else self._rule_index.rules(schemas, kind)
        )

    def _truncate_array(self, elements: list[Raw], rules: RemovalRules, room: int, depth: int) -> bytes:
        kept: list[bytes] = []
        left = room - 2
        for index, element in enumerate(elements):
            needed = rules.fewest - index
            share = left // needed if needed > 1 else left
            # The first element is truncated rather than omitted.
            if rules.elements_fixed or (index and needed <= 0):
                data = minified_if_fits(element, share) or (bytes(element) if needed > 0 else None)
            else:
                data = self.truncate(element, rules.of_element(index), share, depth + 1)
            if data is None or (needed <= 0 and character_count(data) > left):
                break
            kept.append(data)
            left -= character_count(data) + 1
        return join_parts(b"[", kept, b"]")

    def _truncate_object(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> bytes:
        if rules.members_fixed:
            rules = msgspec.structs.replace(rules, required=frozenset(members))
        if room > 2:
            kept = self._share(members, rules, room - 2, depth)
            data = _object(self._first_members(members, rules, room - 2, depth) if kept is None else kept)
            if character_count(data) <= room:
                return data
        needed = {key: value for key, value in members.items() if key in rules.required}
        return _object(
            {key: self.truncate(value, rules.of_member(key), 0, depth + 1) for key, value in needed.items()}
        )

    def _share(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> dict[str, bytes] | None:
        """Small members whole and an equal share for each of the others; None where that is too little."""

        def order(key: str) -> tuple[bool, int]:
            """Required members that cannot be truncated first, then by size."""
            value = members[key]
            fixed = key in rules.required and self._rules(value, rules.of_member(key), depth + 1).fixed
            return not fixed, size_within(value, room)

        left = room + 1 - sum(character_count(encoded_key(key)) + 1 for key in members)
        kept: dict[str, bytes] = {}
        waiting = len(members)
        for key in sorted(members, key=order):
            share = left // waiting
            optional = key not in rules.required
            if (
                optional
                and waiting > _FEW_MEMBERS
                and share < min(_READABLE, size_within(members[key], room))
            ):
                return None
            data = self.truncate(members[key], rules.of_member(key), max(share, 0), depth + 1)
            waiting -= 1
            if character_count(data) <= share or not optional:
                kept[key] = data
                left -= character_count(data)
            else:
                left += character_count(encoded_key(key)) + 1
        return {key: kept[key] for key in members if key in kept}

    def _first_members(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> dict[str, bytes]:
        """The required members in half of the room, then the first of the others that fit."""
        needed = {key: value for key, value in members.items() if key in rules.required}
        kept = self._share(needed, rules, room // 2, depth) or {}
        left = room + 1 - sum(character_count(encoded_key(key) + data) + 1 for key, data in kept.items())
        for key, value in members.items():
            if key in rules.required:
                continue
            left -= character_count(encoded_key(key)) + 1
            data = minified_if_fits(value, left)
            if data is None:
                break
            kept[key] = data
            left -= character_count(data)
        return {key: kept[key] for key in members if key in kept}


def _object(members: Mapping[str, bytes]) -> bytes:
    return join_parts(b"{", (encoded_key(key) + data for key, data in members.items()), b"}")
