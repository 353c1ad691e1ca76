"""Shows the beginning of a result that is too large, and tells where the rest is."""

from typing import Any

import msgspec
from msgspec import Raw

from headgate.responses.anatomy import outer_members
from headgate.responses.content import Content, characters, clipped
from headgate.responses.excerpt.cutting import Cut, cut_json, cut_text
from headgate.responses.excerpt.head_tail import head_tail
from headgate.responses.excerpt.structured import cut_structured
from headgate.responses.jobs import META_KEY, Done, Excerpt
from headgate.responses.notice import filled
from headgate.responses.opened import MANY, Opened
from headgate.responses.params import Unit
from headgate.responses.processing import Refused
from headgate.responses.shares import shares
from headgate.responses.tables import compacted
from headgate.responses.tokens import tokens_of
from headgate.wire.envelope import encode_object

# Of what is cut in the middle, so much of its end is looked at; no character has more than four bytes.
_TAIL_BYTES = 256
# Larger ones are cut without trying whether they would fit with their columns named once.
_LARGEST_TABLE = 4 * 1024 * 1024


def excerpt(opened: Opened, job: Excerpt) -> Done:
    """The result with its texts cut; an empty one when it is within the limits, or no answer of a tool."""
    if not opened.anatomy.complete or not _too_large(opened, job):
        return Done()
    texts, cuts = _texts(opened, job)
    structured = _structured(opened, job, job.limit - sum(map(characters, texts.values())))
    words = {
        "shown": _shown(cuts, structured),
        "size": f"{opened.size:,}",
        "tokens": f"{opened.tokens:,}",
        "cache_id": job.cache_id,
    }
    notice = filled(job.message, words)
    seen = [*texts.values(), structured or b""]
    facts: dict[str, Any] = {
        "cache_id": job.cache_id,
        "original_size": opened.size,
        "processed_size": sum(map(characters, seen)),
        "original_tokens": opened.tokens,
        "processed_tokens": sum(map(tokens_of, seen)),
    }
    return Done(
        result=_assembled(opened, texts, structured, notice, facts),
        original_size=opened.size,
        # The notice is read too.
        processed_size=facts["processed_size"] + len(notice),
        original_tokens=opened.tokens,
        processed_tokens=facts["processed_tokens"] + tokens_of(notice.encode()),
        metadata={"excerpt": facts},
        typed="resultType" in opened.anatomy.members,
    )


def _too_large(opened: Opened, job: Excerpt) -> bool:
    return opened.size > job.limit or (job.limit_tokens is not None and opened.tokens > job.limit_tokens)


def _texts(opened: Opened, job: Excerpt) -> tuple[dict[int, bytes], list[Cut]]:
    """What is shown of each text."""
    if len(opened.texts) > MANY:
        return _first_texts(opened, job)
    rooms = shares(list(opened.sizes.values()), job.room)
    shown: dict[int, bytes] = {}
    cuts: list[Cut] = []
    for (index, text), room in zip(opened.texts.items(), rooms, strict=True):
        if opened.sizes[index] <= room:
            shown[index] = text[:]
            continue
        cut = _cut(opened, index, room, job)
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
        if room < 0:
            shown[index] = _cut(opened, index, room + opened.sizes[index], job).content
    count, total = len(shown), len(opened.texts)
    return shown, [Cut(content=b"", shown=count, total=total, unit=Unit.ELEMENTS, whole=False)]


def _cut(opened: Opened, index: int, room: int, job: Excerpt) -> Cut:
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
    try:
        return cut_json(text, room)
    except Refused:
        # It parses from the outside only.
        return cut_text(text, room)


def _middle_left_out(text: Content, size: int, room: int) -> Cut:
    beginning = clipped(text[: (room + 1) * 4], room + 1).decode(errors="replace")
    end = text[-_TAIL_BYTES:].decode(errors="ignore")
    # All that matters of it: whether it is longer, how it begins and how it ends.
    shown = head_tail(beginning + end, room).encode()
    return Cut(content=shown, shown=room, total=size, unit=Unit.CHARACTERS, whole=False)


def _shown(cuts: list[Cut], structured: bytes | None) -> str:
    if not cuts:
        return f"the text is whole, what stands in structure is {'cut' if structured else 'left out'}"
    if all(cut.whole for cut in cuts):
        return "all of it, written more tightly"
    return " and ".join(f"{cut.shown:,} of {cut.total:,} {cut.unit}" for cut in cuts if not cut.whole)


def _structured(opened: Opened, job: Excerpt, left: int) -> bytes | None:
    """What is left of `structuredContent`: it must still be what the tool promises."""
    structured = opened.anatomy.structured
    if structured is None:
        return None
    room = min(job.room, left)
    if opened.structured_size <= room:
        return bytes(structured)
    return cut_structured(bytes(structured), job.output_schema, room)


def _assembled(
    opened: Opened,
    texts: dict[int, bytes],
    structured: bytes | None,
    notice: str,
    facts: dict[str, Any],
) -> bytes:
    """The result with its new texts; everything else is as it came, and in its place."""
    anatomy = opened.anatomy
    blocks = [
        bytes(block.raw)
        if block.text is None or texts[index] is opened.texts[index]
        else block.with_text(texts[index])
        for index, block in enumerate(anatomy.blocks)
        if block.text is None or index in texts
    ]
    blocks.append(msgspec.json.encode({"type": "text", "text": notice}))
    members = dict(anatomy.members)
    members["content"] = Raw(b"[" + b",".join(blocks) + b"]")
    if structured is not None:
        members["structuredContent"] = Raw(structured)
    else:
        members.pop("structuredContent", None)
    return encode_object(with_meta(members, facts))


def with_meta(members: dict[str, Raw], facts: dict[str, Any]) -> dict[str, Raw]:
    """The members with what was saved in `_meta`, beside what the upstream put there."""
    meta: dict[str, Raw] = {}
    if bytes(members.get("_meta", b""))[:1] == b"{":
        meta = outer_members(members["_meta"])
    meta[META_KEY] = Raw(msgspec.json.encode(facts))
    return members | {"_meta": Raw(encode_object(meta))}
