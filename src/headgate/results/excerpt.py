"""Builds the excerpt of a result that is too large, with a notice that says where the rest is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from headgate.results.compact_tables import to_compact_tables
from headgate.results.content import Content, character_count, first_characters
from headgate.results.explore.explore_processor import ExploreProcessor
from headgate.results.jobs import ExcerptJob, ExploreParams, JobResult, PageUnit
from headgate.results.notices import fill_placeholders, spoofed_notices
from headgate.results.parsed_result import MANY_TEXTS, ParsedResult, minify_json
from headgate.results.pipeline import ProcessingError
from headgate.results.reply import job_result, size_facts, text_block, with_notice
from headgate.results.result_structure import top_level_members
from headgate.results.structured_excerpt import truncate_structured, truncation_loss
from headgate.results.truncation import (
    TruncatedContent,
    fair_shares,
    head_tail,
    head_tail_size,
    leading_byte,
    truncate_json,
    truncate_text,
    whole_content,
)
from headgate.schema.notice_compatibility import NOTICE_MEMBER

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
