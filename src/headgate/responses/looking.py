"""Carries out what an agent asks of a stored result, and puts the reply together."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from headgate.responses.anatomy import Anatomy
from headgate.responses.content import Content, characters, is_json
from headgate.responses.excerpt.cutting import cut_json, cut_text
from headgate.responses.excerpting import with_meta
from headgate.responses.jobs import Done, Look
from headgate.responses.notice import page_note
from headgate.responses.opened import Opened, length
from headgate.responses.params import Unit
from headgate.responses.paths import part
from headgate.responses.processing import Pipeline, Processor, Refused
from headgate.responses.processors.explore import ExploreProcessor
from headgate.responses.processors.projection import ProjectionProcessor
from headgate.responses.processors.read import ReadProcessor, page
from headgate.responses.processors.search.grep import GrepProcessor
from headgate.responses.shares import shares
from headgate.responses.tables import compacted
from headgate.responses.tokens import tokens_of
from headgate.wire.envelope import encode_object

# Members of a result that are about the call and not about what it gave.
_KEPT = ("resultType", "isError", "_meta")


def look(opened: Opened, job: Look, query: Processor | None = None) -> Done:
    """The reply to one call of a tool that reads stored results; `query` is the engine for questions."""
    filters = job.projection is not None
    if filters and not opened.is_one and not job.path:
        return _filtered(opened, job)
    processors: list[Processor] = [
        ProjectionProcessor(),
        GrepProcessor(),
        ExploreProcessor(opened.scratch),
        ReadProcessor(opened.scratch),
    ]
    params = {
        "projection": job.projection,
        "search": job.search,
        "explore": job.exploration,
        "read": job.reading,
        "query": job.query,
    }
    if query is not None:
        processors.append(query)
    try:
        content = part(_content(opened, job), job.path, opened.scratch) if job.path else _content(opened, job)
    except Refused as refused:
        return Done(error=str(refused))
    made = Pipeline(processors).run(content, params)
    if made.error is not None:
        return Done(error=made.error)
    metadata, content = dict(made.metadata), made.content
    if filters:
        shown = page(content, job.offset, job.room)
        content, metadata["page"] = shown.content, dict(shown.metadata)
    return _Reply(opened, job).told([_compacted(content[:], job)], metadata)


def _content(opened: Opened, job: Look) -> Content:
    reading = job.reading
    by_signs = reading is not None and not reading.path and reading.unit in (Unit.LINES, Unit.CHARACTERS)
    return opened.as_written if by_signs else opened.document.content


def _filtered(opened: Opened, job: Look) -> Done:
    """Every text projected by itself, in its place, and what stands in structure likewise."""
    pipeline = Pipeline([ProjectionProcessor()])
    params = {"projection": job.projection}
    texts = opened.tight or {-1: opened.document.content}
    made = {index: pipeline.run(text, params) for index, text in texts.items()}
    for one in made.values():
        if one.error is not None:
            return Done(error=one.error)
    # What is said of fields is said of the text that has the most.
    main = max(made, key=lambda index: made[index].original_size)
    metadata = dict(made[main].metadata)
    pages, paging = _paged({index: one.content for index, one in made.items()}, main, job)
    if paging:
        metadata["page"] = paging
    room = job.room - sum(map(characters, pages.values()))
    structured = _structured(opened, job, room) if opened.texts and not paging else None
    return _Reply(opened, job).filtered(pages, structured, metadata)


def _structured(opened: Opened, job: Look, room: int) -> bytes | None:
    """The same fields of what stands in structure, if there is room for them, and if they are there.

    Many servers wrap a text into an object there, in which no field is that the text has.
    """
    if opened.anatomy.structured is None:
        return None
    structured = bytes(opened.anatomy.structured)
    made = Pipeline([ProjectionProcessor()]).run(structured, {"projection": job.projection})
    missing = made.metadata.get("projection", {}).get("fields_not_found")
    if made.error is not None or missing or length(made.content) > room:
        return None
    return made.content[:]


def _paged(texts: Mapping[int, Content], main: int, job: Look) -> tuple[dict[int, bytes], dict[str, Any]]:
    """As much of each as there is room for, and of the main one from an offset on."""
    sizes = {index: length(text) for index, text in texts.items()}
    if sum(sizes.values()) <= job.room and not job.offset:
        return {index: _compacted(text[:], job) for index, text in texts.items()}, {}
    rooms = dict(zip(sizes, shares(list(sizes.values()), job.room), strict=True))
    pages: dict[int, bytes] = {}
    for index, text in texts.items():
        # The others were seen with the first page.
        if index != main and not job.offset:
            pages[index] = _beginning(text, rooms[index])
    shown = page(texts[main], job.offset, rooms[main])
    pages[main] = _compacted(shown.content[:], job)
    metadata = dict(shown.metadata)
    if any(length(text) > rooms[index] for index, text in texts.items() if index != main):
        metadata["other_texts"] = "cut"
    return pages, metadata


def _beginning(text: Content, room: int) -> bytes:
    if length(text) <= room:
        return text[:]
    return (cut_json(text, room) if is_json(text) else cut_text(text, room)).content


def _compacted(content: bytes, job: Look) -> bytes:
    """A table with its columns named once, where that was asked for and saves something."""
    return (compacted(content) or content) if job.compact and is_json(content) else content


class _Reply:
    """Puts a reply together."""

    def __init__(self, opened: Opened, job: Look) -> None:
        self._opened = opened
        self._job = job

    def told(self, texts: list[bytes], metadata: Mapping[str, Any]) -> Done:
        """What was made, the other blocks if the agent has not seen them, and the note."""
        blocks = [_text(text) for text in texts]
        if self._job.projection is not None and self._opened.is_summed_up:
            left = self._job.room - sum(map(characters, texts))
            summary = self._summary(left)
            return self._done(blocks + self._blocks(summary), [*texts, *summary.values()], metadata, None)
        if self._job.projection is not None or self._job.fresh:
            blocks += [bytes(block.raw) for block in self._opened.anatomy.blocks if block.text is None]
        return self._done(blocks, texts, metadata, None)

    def _summary(self, room: int) -> dict[int, bytes]:
        """The texts that sum up what stands in structure, as far as there is room for them."""
        rooms = shares(list(self._opened.sizes.values()), max(room, 0))
        texts = self._opened.texts.items()
        return {index: _beginning(text, share) for (index, text), share in zip(texts, rooms, strict=True)}

    def _blocks(self, texts: Mapping[int, bytes]) -> list[bytes]:
        """The blocks of the result, each with another text."""
        return [
            bytes(block.raw) if block.text is None else block.with_text(texts[index])
            for index, block in enumerate(self._opened.anatomy.blocks)
            if block.text is None or index in texts
        ]

    def filtered(
        self, texts: Mapping[int, bytes], structured: bytes | None, metadata: Mapping[str, Any]
    ) -> Done:
        """The blocks of the result, each with what was left of its text."""
        blocks = ([_text(texts[-1])] if -1 in texts else []) + self._blocks(texts)
        return self._done(blocks, [*texts.values(), structured or b""], metadata, structured)

    def _done(
        self, blocks: list[bytes], seen: list[bytes], metadata: Mapping[str, Any], structured: bytes | None
    ) -> Done:
        facts: dict[str, Any] = {
            "cache_id": self._job.cache_id,
            "original_size": self._opened.size,
            "processed_size": sum(map(characters, seen)),
            "original_tokens": self._opened.tokens,
            "processed_tokens": sum(map(tokens_of, seen)),
            **metadata,
        }
        note = page_note(self._job.cache_id, metadata)
        if self._job.ignored:
            note += f"; no such argument: {', '.join(self._job.ignored)}"
        if not self._opened.texts and self._opened.anatomy.structured is None:
            note += f"; the result has no text, but {_kinds(self._opened.anatomy)}"
        blocks.append(_text(note.encode()))
        kept = {key: value for key, value in self._opened.anatomy.members.items() if key in _KEPT}
        members = {"content": Raw(b"[" + b",".join(blocks) + b"]")} | kept
        if structured is not None:
            members["structuredContent"] = Raw(structured)
        return Done(
            result=encode_object(with_meta(members, facts)),
            original_size=self._opened.size,
            # The note is read too.
            processed_size=facts["processed_size"] + len(note),
            original_tokens=self._opened.tokens,
            processed_tokens=facts["processed_tokens"] + tokens_of(note.encode()),
            metadata=dict(metadata),
            typed="resultType" in members,
        )


def _kinds(anatomy: Anatomy) -> str:
    kinds = Counter(block.type or "unknown" for block in anatomy.blocks)
    return ", ".join(f"{count} of type {kind}" for kind, count in kinds.items()) or "no content at all"


def _text(text: bytes) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text.decode(errors="replace")})
