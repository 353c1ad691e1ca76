"""Builds the excerpt of a result that is too large, with a notice that says where the rest is."""

from collections.abc import Mapping
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
    """The result with truncated texts and `structuredContent`, each with a notice that says where the rest
    is.

    Empty where the result is to be shown whole: it is within the limits, no complete tool result, of an
    unknown tool, not truncatable, or not shorter as head and tail.
    """
    if not parsed.structure.complete or not _too_large(parsed, job):
        return JobResult()
    if not job.tool_known and parsed.structure.structured is not None:
        return JobResult()
    part = _excerpt_parts(parsed, job)
    if part.is_whole:
        return JobResult()
    done = part.result()
    if job.style == "head_tail" and not _is_shorter(done, parsed):
        return JobResult()
    return done


def _is_shorter(done: JobResult, parsed: ParsedResult) -> bool:
    return done.processed_size < parsed.size and len(done.result) < parsed.size_bytes


def _too_large(parsed: ParsedResult, job: ExcerptJob) -> bool:
    return parsed.size > job.limit or (job.limit_tokens is not None and parsed.tokens > job.limit_tokens)


def _excerpt_parts(parsed: ParsedResult, job: ExcerptJob) -> "_ExcerptReply":
    texts, cuts = _text_excerpts(parsed, job)
    structured = _structured_excerpt(parsed, job)
    left = max(1, min(job.room, job.limit - sum(map(character_count, texts.values()))))
    added: list[TruncatedContent] = []
    if structured is None and parsed.structure.structured is not None:
        added = _structured_as_text(parsed, job, left)
    return _ExcerptReply(parsed, job, texts, cuts, structured, added)


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
    count, total = len(shown), len(parsed.texts)
    return shown, [
        TruncatedContent(content=b"", shown=count, total=total, unit=PageUnit.ELEMENTS, whole=False)
    ]


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
            return TruncatedContent(content=table, shown=1, total=1, unit=PageUnit.ELEMENTS, whole=True)
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
    return TruncatedContent(content=shown, shown=room, total=size, unit=PageUnit.CHARACTERS, whole=False)


def _structured_excerpt(parsed: ParsedResult, job: ExcerptJob) -> TruncatedContent | None:
    """The part of `structuredContent` that satisfies the output schema; None for a tool without one."""
    structured = parsed.structure.structured
    if structured is None or job.output_schema is None or leading_byte(structured) != b"{":
        return None
    whole = bytes(structured)
    content = truncate_structured(whole, job.output_schema, job.room)
    loss = truncation_loss(whole, content)
    if loss is None:
        return TruncatedContent(content, 1, 1, PageUnit.ELEMENTS, whole=True)
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
        return [cut or TruncatedContent(content, 1, 1, PageUnit.ELEMENTS, whole=True)]
    cut = _json_or_text_excerpt(content, room - room // _OUTLINE_SHARE)
    params = ExploreParams(max_depth=_OUTLINE_DEPTH, room=room // _OUTLINE_SHARE)
    outline = ExploreProcessor(parsed.scratch).process(content, params).content[:]
    return [cut, TruncatedContent(outline, 1, 1, PageUnit.ELEMENTS, whole=True)]


class _ExcerptReply:
    """The excerpt of a result: its remaining parts, and the notice about the rest."""

    def __init__(
        self,
        parsed: ParsedResult,
        job: ExcerptJob,
        texts: Mapping[int, bytes],
        cuts: list[TruncatedContent],
        structured: TruncatedContent | None,
        added: list[TruncatedContent],
    ) -> None:
        """`added` are texts that the result does not have itself."""
        self._parsed = parsed
        self._job = job
        self._spoofed_notices = spoofed_notices(job.message.partition("{")[0])
        self._texts = texts
        self._cuts = cuts
        self._structured = structured
        self._added = added

    @property
    def is_whole(self) -> bool:
        """Whether nothing was omitted."""
        if self._structured is None:
            return not self._cuts and self._parsed.structure.structured is None
        return not self._cuts and self._structured.whole

    def result(self) -> JobResult:
        """The job's result, with the excerpt as a tool result."""
        notice = self._notice(self._shown_summary())
        texts = [*self._texts.values(), *(cut.content for cut in self._added)]
        structured = b""
        if self._structured is not None:
            structured = self._with_notice(self._spoofed_notices.mark_texts(self._structured.content))
        # The notice is read too, so the savings are net.
        facts = size_facts(self._parsed, self._job.cache_id, [*texts, notice.encode()], structured)
        blocks = [*self._blocks(), text_block(notice.encode())]
        return job_result(self._members(structured), blocks, facts, {"excerpt": facts})

    def _notice(self, shown: str) -> str:
        words = {
            "shown": shown,
            "size": f"{self._parsed.size:,}",
            "tokens": f"{self._parsed.tokens:,}",
            "cache_id": self._job.cache_id,
        }
        return fill_placeholders(self._job.message, words)

    def _shown_summary(self) -> str:
        cuts = [cut for cut in (*self._cuts, *self._added) if not cut.whole]
        if cuts:
            return " and ".join(map(_shown_of_total, cuts))
        if self._cuts:
            return "all of it, written more tightly"
        if self._structured is None:
            return "the text is whole, structuredContent is left out"
        return f"the text is whole, structuredContent is cut to {_shown_of_total(self._structured)}"

    def _with_notice(self, content: bytes) -> bytes:
        """The `structuredContent` of the excerpt, with the notice as its first member."""
        cut = self._structured
        assert cut is not None
        shown = "structuredContent is whole, the text beside it is cut" if cut.whole else _shown_of_total(cut)
        notice_fields: dict[str, Any] = {
            "notice": self._notice(shown),
            "cache_id": self._job.cache_id,
            "shown": cut.shown,
            "total": cut.total,
        }
        upstream = self._notice_of_upstream()
        if upstream is not None:
            notice_fields["upstream"] = upstream
        return with_notice(content, notice_fields)

    def _notice_of_upstream(self) -> Raw | None:
        """The notice that the upstream itself has added, as another gateway does."""
        structured = self._parsed.structure.structured
        if structured is None or b"headgate" not in bytes(structured):
            return None
        notice_fields = top_level_members(structured).get(NOTICE_MEMBER)
        if notice_fields is None:
            return None
        return Raw(
            self._spoofed_notices.mark_texts(
                _json_or_text_excerpt(bytes(notice_fields), _LONGEST_UPSTREAM_NOTICE).content
            )
        )

    def _blocks(self) -> list[bytes]:
        """The blocks with their new texts; only the notice of this gateway may look like one."""
        whole = self._parsed.texts
        blocks = [
            bytes(block.raw)
            if block.text is None or self._texts[index] is whole[index]
            else block.with_text(self._texts[index])
            for index, block in enumerate(self._parsed.structure.blocks)
            if block.text is None or index in self._texts
        ]
        blocks += [text_block(cut.content) for cut in self._added]
        return [self._spoofed_notices.mark_texts(block) for block in blocks]

    def _members(self, structured: bytes) -> dict[str, Raw]:
        """The members of the result, unchanged except for `structuredContent`."""
        members = dict(self._parsed.structure.members)
        members.setdefault("content", Raw(b"[]"))
        if structured:
            members["structuredContent"] = Raw(structured)
        else:
            members.pop("structuredContent", None)
        return members


def _shown_of_total(cut: TruncatedContent) -> str:
    return f"{cut.shown:,} of {cut.total:,} {cut.unit}"
