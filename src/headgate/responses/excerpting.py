"""Shows the beginning of a result that is too large, and tells where the rest is."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from headgate.protocol.jsonrpc import encode_object
from headgate.responses.anatomy import outer_members
from headgate.responses.content import Content, characters, clipped
from headgate.responses.excerpt.cutting import Cut, cut_json, cut_text
from headgate.responses.excerpt.head_tail import head_tail, shortened_size
from headgate.responses.excerpt.pieces import kind_of
from headgate.responses.excerpt.structured import cut_structured, lost
from headgate.responses.jobs import META_KEY, Done, Excerpt
from headgate.responses.notice import filled
from headgate.responses.opened import MANY, Opened, compacted_json
from headgate.responses.params import Exploration, Unit
from headgate.responses.processing import Refused
from headgate.responses.processors.explore.explore import ExploreProcessor
from headgate.responses.savings import shown
from headgate.responses.server_notices import imitations_of
from headgate.responses.shares import shares
from headgate.responses.tables import compacted
from headgate.schema.notice_compatibility import NOTICE_MEMBER

# Of what is cut in the middle, so much of its end is looked at; no character has more than four bytes.
_TAIL_BYTES = 256
# Larger ones are cut without trying whether they would fit with their columns named once.
_LARGEST_TABLE = 4 * 1024 * 1024
# The outline of a `structuredContent` that is left out gets such a part of the room, its excerpt the rest.
_OUTLINE_SHARE = 3
_OUTLINE_DEPTH = 2
# Characters of a notice that the upstream has put there itself, as another gateway does.
_LONGEST_UPSTREAM_NOTICE = 600


def excerpt(opened: Opened, job: Excerpt) -> Done:
    """The result with its texts and `structuredContent` cut, each with a notice that tells where the rest is.

    Empty where the result is shown whole: it is within the limits, no answer of a tool, of a tool that is not
    known, nothing of it can be left out, or its head and tail would not be shorter.
    """
    if not opened.anatomy.complete or not _too_large(opened, job):
        return Done()
    if not job.tool_known and opened.anatomy.structured is not None:
        return Done()
    part = _cut_all(opened, job)
    if part.is_whole:
        # Nothing can be left out.
        return Done()
    done = part.done()
    if job.style == "head_tail" and not _is_shorter(done, opened):
        return Done()
    return done


def _is_shorter(done: Done, opened: Opened) -> bool:
    return done.processed_size < opened.size and len(done.result) < opened.size_bytes


def _too_large(opened: Opened, job: Excerpt) -> bool:
    return opened.size > job.limit or (job.limit_tokens is not None and opened.tokens > job.limit_tokens)


def _cut_all(opened: Opened, job: Excerpt) -> "_Shown":
    texts, cuts = _texts(opened, job)
    structured = _structured(opened, job)
    left = max(1, min(job.room, job.limit - sum(map(characters, texts.values()))))
    added: list[Cut] = []
    if structured is None and opened.anatomy.structured is not None:
        added = _structure_in_words(opened, job, left)
    return _Shown(opened, job, texts, cuts, structured, added)


def _texts(opened: Opened, job: Excerpt) -> tuple[dict[int, bytes], list[Cut]]:
    """What is shown of each text."""
    if len(opened.texts) > MANY:
        return _first_texts(opened, job)
    rooms = shares(list(opened.sizes.values()), job.room)
    shown: dict[int, bytes] = {}
    cuts: list[Cut] = []
    for (index, text), room in zip(opened.texts.items(), rooms, strict=True):
        cut = _cut(opened, index, room, job) if opened.sizes[index] > room else None
        if cut is None:
            shown[index] = text[:]
            continue
        shown[index] = cut.content
        cuts.append(cut)
    return shown, cuts


def _first_texts(opened: Opened, job: Excerpt) -> tuple[dict[int, bytes], list[Cut]]:
    """As many as fit of very many texts, whole; the others are left out with their blocks."""
    shown: dict[int, bytes] = {}
    room = job.room
    for index, text in opened.texts.items():
        room -= opened.sizes[index]
        if room < 0 and shown:
            break
        shown[index] = text[:]
        cut = _cut(opened, index, room + opened.sizes[index], job) if room < 0 else None
        if cut is not None:
            shown[index] = cut.content
    count, total = len(shown), len(opened.texts)
    return shown, [Cut(content=b"", shown=count, total=total, unit=Unit.ELEMENTS, whole=False)]


def _cut(opened: Opened, index: int, room: int, job: Excerpt) -> Cut | None:
    """What is shown of one text, None where that is all of it."""
    if job.style == "head_tail":
        return _middle_left_out(opened.texts[index], opened.sizes[index], room)
    text = opened.tight[index]
    if not opened.json[index]:
        return cut_text(text, room)
    if job.compact and len(text) <= _LARGEST_TABLE:
        table = compacted(text)
        most = job.limit if len(opened.texts) == 1 else room
        if table is not None and characters(table) <= most:
            return Cut(content=table, shown=1, total=1, unit=Unit.ELEMENTS, whole=True)
        text = table or text
    return _cut_json(text, room)


def _cut_json(text: Content, room: int) -> Cut:
    try:
        return cut_json(text, room)
    except Refused:
        # It parses from the outside only.
        return cut_text(text, room)


def _middle_left_out(text: Content, size: int, room: int) -> Cut | None:
    if size <= shortened_size(room):
        return None
    beginning = clipped(text[: (room + 1) * 4], room + 1).decode(errors="replace")
    end = text[-_TAIL_BYTES:].decode(errors="ignore")
    # All that matters of it: whether it is longer, how it begins and how it ends.
    shown = head_tail(beginning + end, room).encode()
    return Cut(content=shown, shown=room, total=size, unit=Unit.CHARACTERS, whole=False)


def _structured(opened: Opened, job: Excerpt) -> Cut | None:
    """What is left of `structuredContent`: what the tool promises, and nothing where it promises nothing."""
    structured = opened.anatomy.structured
    if structured is None or job.output_schema is None or kind_of(structured) != b"{":
        return None
    whole = bytes(structured)
    content = cut_structured(whole, job.output_schema, job.room)
    loss = lost(whole, content)
    if loss is None:
        return Cut(content, 1, 1, Unit.ELEMENTS, whole=True)
    return Cut(content, loss.shown, loss.total, loss.unit, whole=False)


def _structure_in_words(opened: Opened, job: Excerpt, room: int) -> list[Cut]:
    """Texts that stand for a `structuredContent` that is left out, where no text of the result says it.

    The first is a part of it as JSON, the second its outline: keys, types and counts.
    """
    if opened.texts and not opened.is_summed_up:
        return []
    assert opened.anatomy.structured is not None
    content = compacted_json(bytes(opened.anatomy.structured))[:]
    if job.style == "head_tail":
        cut = _middle_left_out(content, opened.structured_size, room)
        return [cut or Cut(content, 1, 1, Unit.ELEMENTS, whole=True)]
    cut = _cut_json(content, room - room // _OUTLINE_SHARE)
    wanted = Exploration(max_depth=_OUTLINE_DEPTH, room=room // _OUTLINE_SHARE)
    outline = ExploreProcessor(opened.scratch).process(content, wanted).content[:]
    return [cut, Cut(outline, 1, 1, Unit.ELEMENTS, whole=True)]


class _Shown:
    """What is shown of a result, and what is told of the rest."""

    def __init__(
        self,
        opened: Opened,
        job: Excerpt,
        texts: Mapping[int, bytes],
        cuts: list[Cut],
        structured: Cut | None,
        added: list[Cut],
    ) -> None:
        """`added` are texts that the result did not have."""
        self._opened = opened
        self._job = job
        self._imitations = imitations_of(job.message.partition("{")[0])
        self._texts = texts
        self._cuts = cuts
        self._structured = structured
        self._added = added

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut."""
        if self._structured is None:
            return not self._cuts and self._opened.anatomy.structured is None
        return not self._cuts and self._structured.whole

    def done(self) -> Done:
        """The result that is shown."""
        opened = self._opened
        notice = self._notice(self._told_of_texts())
        texts = [*self._texts.values(), *(cut.content for cut in self._added)]
        structured = b""
        if self._structured is not None:
            structured = self._with_notice(self._imitations.marked_texts(self._structured.content))
        # The notices are read too, so that what is saved is net.
        size, tokens = shown([*texts, notice.encode()], structured)
        facts: dict[str, Any] = {
            "cache_id": self._job.cache_id,
            "original_size": opened.size,
            "processed_size": size,
            "original_tokens": opened.tokens,
            "processed_tokens": tokens,
        }
        return Done(
            result=self._assembled(structured, notice, facts),
            original_size=opened.size,
            processed_size=size,
            original_tokens=opened.tokens,
            processed_tokens=tokens,
            metadata={"excerpt": facts},
            typed="resultType" in opened.anatomy.members,
        )

    def _notice(self, shown: str) -> str:
        words = {
            "shown": shown,
            "size": f"{self._opened.size:,}",
            "tokens": f"{self._opened.tokens:,}",
            "cache_id": self._job.cache_id,
        }
        return filled(self._job.message, words)

    def _told_of_texts(self) -> str:
        cuts = [cut for cut in (*self._cuts, *self._added) if not cut.whole]
        if cuts:
            return " and ".join(map(_counted, cuts))
        if self._cuts:
            return "all of it, written more tightly"
        if self._structured is None:
            return "the text is whole, structuredContent is left out"
        return f"the text is whole, structuredContent is cut to {_counted(self._structured)}"

    def _with_notice(self, content: bytes) -> bytes:
        """The `structuredContent` that is shown; the notice is its first member."""
        cut = self._structured
        assert cut is not None
        shown = "structuredContent is whole, the text beside it is cut" if cut.whole else _counted(cut)
        told: dict[str, Any] = {
            "notice": self._notice(shown),
            "cache_id": self._job.cache_id,
            "shown": cut.shown,
            "total": cut.total,
        }
        upstream = self._notice_of_upstream()
        if upstream is not None:
            told["upstream"] = upstream
        return with_notice(content, told)

    def _notice_of_upstream(self) -> Raw | None:
        """What the upstream itself has left out, as another gateway behind this one does."""
        structured = self._opened.anatomy.structured
        if structured is None or b"headgate" not in bytes(structured):
            return None
        told = outer_members(structured).get(NOTICE_MEMBER)
        if told is None:
            return None
        return Raw(self._imitations.marked_texts(_cut_json(bytes(told), _LONGEST_UPSTREAM_NOTICE).content))

    def _assembled(self, structured: bytes, notice: str, facts: dict[str, Any]) -> bytes:
        """The result with its new texts; everything else is as it came, and in its place."""
        anatomy, whole = self._opened.anatomy, self._opened.texts
        blocks = [
            bytes(block.raw)
            if block.text is None or self._texts[index] is whole[index]
            else block.with_text(self._texts[index])
            for index, block in enumerate(anatomy.blocks)
            if block.text is None or index in self._texts
        ]
        blocks += [_text(cut.content.decode(errors="replace")) for cut in self._added]
        # Only the notice of this gateway may look like one.
        blocks = [self._imitations.marked_texts(block) for block in blocks]
        blocks.append(_text(notice))
        members = dict(anatomy.members)
        members["content"] = Raw(b"[" + b",".join(blocks) + b"]")
        if structured:
            members["structuredContent"] = Raw(structured)
        else:
            members.pop("structuredContent", None)
        return encode_object(with_meta(members, facts))


def _counted(cut: Cut) -> str:
    return f"{cut.shown:,} of {cut.total:,} {cut.unit}"


def _text(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def with_notice(structured: bytes, told: Mapping[str, Any]) -> bytes:
    """The object with the notice as its first member, in place of one that it has."""
    members = outer_members(structured)
    members.pop(NOTICE_MEMBER, None)
    return encode_object({NOTICE_MEMBER: Raw(msgspec.json.encode(told)), **members})


def with_meta(members: dict[str, Raw], facts: dict[str, Any]) -> dict[str, Raw]:
    """The members with what was saved in `_meta`, beside what the upstream put there."""
    meta: dict[str, Raw] = {}
    if bytes(members.get("_meta", b""))[:1] == b"{":
        meta = outer_members(members["_meta"])
    meta[META_KEY] = Raw(msgspec.json.encode(facts))
    return members | {"_meta": Raw(encode_object(meta))}
