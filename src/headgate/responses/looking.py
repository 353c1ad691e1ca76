"""Carries out what an agent asks of a stored result, and puts the reply together."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from headgate.protocol.jsonrpc import encode_object
from headgate.responses.anatomy import Anatomy, outer_members
from headgate.responses.content import Content, characters, first_sign, is_json
from headgate.responses.embedded import MainJson, held_json, main_json
from headgate.responses.embedded_search import searched
from headgate.responses.excerpt.cutting import cut_json, cut_text
from headgate.responses.excerpting import with_meta, with_notice
from headgate.responses.hit_positions import located
from headgate.responses.jobs import Done, Look
from headgate.responses.notice import page_note
from headgate.responses.opened import Opened, by_index, length
from headgate.responses.params import Exploration, Projection, SearchMode, Unit
from headgate.responses.processing import Pipeline, Processor, ProcessorResult, Refused
from headgate.responses.processors.explore.explore import ExploreProcessor, explored_blocks
from headgate.responses.processors.lines import json_lines, string_as_text
from headgate.responses.processors.places import place
from headgate.responses.processors.projection.projection import ProjectionProcessor
from headgate.responses.processors.read.read import ReadProcessor, page
from headgate.responses.processors.read.rows import rows_page
from headgate.responses.processors.search.grep import GrepProcessor
from headgate.responses.savings import shown
from headgate.responses.shares import shares
from headgate.responses.tables import compacted
from headgate.schema.notice_compatibility import NOTICE_MEMBER

# Members of a result that are about the call and not about what it gave.
_KEPT = ("resultType", "isError", "_meta")


def look(opened: Opened, job: Look, query: Processor | None = None) -> Done:
    """The reply to one call of a tool that reads stored results; `query` is the engine for questions."""
    try:
        return _looked(opened, job, query)
    except Refused as refused:
        return Done(error=str(refused))


def _looked(opened: Opened, job: Look, query: Processor | None) -> Done:
    if _only_filters(job) and not opened.is_one and not job.path and not _names_block(opened, job):
        return _filtered(opened, job)
    if job.exploration is not None and not job.exploration.path and opened.is_mixed and opened.values:
        return _Reply(opened, job).told(*_explored(opened, job.exploration))
    made = _processed(opened, job, query)
    if made.error is not None:
        return Done(error=made.error)
    metadata, content = dict(made.metadata), made.content
    if _only_filters(job):
        shown = _page(made, job.offset, job.room)
        content, metadata["page"] = shown.content, dict(shown.metadata)
    return _Reply(opened, job).told([_compacted(content[:], job)], metadata)


def _explored(opened: Opened, exploration: Exploration) -> tuple[list[bytes], dict[str, Any]]:
    return explored_blocks(opened.blocks, len(opened.texts), exploration, opened.scratch)


def _only_filters(job: Look) -> bool:
    return job.projection is not None and job.search is None


def _names_block(opened: Opened, job: Look) -> bool:
    """Whether the fields begin with the index of a block, as the paths do that explore names."""
    return opened.is_mixed and job.projection is not None and by_index(*_fields(job.projection))


def _fields(projection: Projection) -> tuple[str, ...]:
    return (*projection.fields, *projection.exclude)


def _processed(opened: Opened, job: Look, query: Processor | None) -> ProcessorResult:
    """What the processors that the job has parameters for make of the content."""
    processors: list[Processor] = [
        ProjectionProcessor(),
        GrepProcessor(scratch=opened.scratch),
        ExploreProcessor(opened.scratch),
        ReadProcessor(opened.scratch),
    ]
    if query is not None:
        processors.append(query)
    pipeline = Pipeline(processors)
    params = {
        "projection": job.projection,
        "search": job.search,
        "explore": job.exploration,
        "read": job.reading,
        "query": job.query,
    }
    content, main = _content(opened, job)
    if job.search is None:
        return pipeline.run(content if main is None else main.content, params)
    made, form = searched(lambda form: pipeline.run(form, params), content, main, job.search, opened.scratch)
    if made.error is not None:
        return made
    found = {**made.metadata["search"], **located(made, form, opened, job, is_written=form is content)}
    return msgspec.structs.replace(made, metadata={**made.metadata, "search": found})


def _content(opened: Opened, job: Look) -> tuple[Content, MainJson | None]:
    """What is looked at, and the JSON in it where it is a text with little else."""
    scratch = opened.scratch
    if job.path:
        where = place(opened.addressed(job.path), job.path, scratch)
        content = string_as_text(where.value, scratch) if where.path else where.value
        if job.projection is not None:
            return held_json(content, scratch) or content, None
        return content, main_json(content, scratch)
    inner = next((part.path for part in (job.exploration, job.reading, job.query) if part is not None), "")
    if inner.strip():
        return opened.addressed(inner), None
    if job.projection is not None:
        return opened.addressed(*_fields(job.projection)), None
    if job.reading is not None and job.reading.unit in (Unit.LINES, Unit.CHARACTERS):
        return opened.as_written, None
    pages_text = job.reading is not None and job.reading.unit is not Unit.ELEMENTS
    shows_text = pages_text or job.exploration is not None
    by_context = job.search is not None and job.search.mode is SearchMode.CONTEXT
    return opened.document.content, None if shows_text or by_context else opened.main


def _page(made: ProcessorResult, offset: int, room: int) -> ProcessorResult:
    """A page of what a projection left: of a table its rows, of anything else elements or lines."""
    separator = made.metadata.get("projection", {}).get("separator")
    if separator is None:
        return page(made.content, offset, room)
    return rows_page(made.content, separator, offset, room)


def _filtered(opened: Opened, job: Look) -> Done:
    """Every text projected by itself, in its place, and what stands in structure likewise."""
    texts = opened.tight or {-1: opened.document.content}
    made = {index: _projected(opened, index, text, job) for index, text in texts.items()}
    for one in made.values():
        if one.error is not None:
            return Done(error=one.error)
    # The facts about fields are those of the largest text that has any of them.
    main = max(made, key=lambda index: (made[index].applied, made[index].original_size))
    metadata = dict(made[main].metadata)
    pages, paging = _paged(made, main, job)
    if paging:
        metadata["page"] = paging
    room = job.room - sum(map(characters, pages.values()))
    structured = _structured(opened, job, room) if opened.texts and not paging else None
    return _Reply(opened, job).filtered(pages, structured, metadata)


def _projected(opened: Opened, index: int, text: Content, job: Look) -> ProcessorResult:
    """What is left of a text, or of the JSON in it where that has one of the fields."""
    pipeline, params = Pipeline([ProjectionProcessor()]), {"projection": job.projection}
    # JSON Lines stay JSON Lines.
    value = opened.values.get(index, text) if json_lines(text) is None else text
    made = pipeline.run(value, params)
    if value is text or made.error is not None:
        return made
    found = made.metadata["projection"]
    is_main = main_json(text, opened.scratch) is not None
    if not is_main and len(found.get("fields_not_found", ())) == len(found["fields"]):
        return pipeline.run(text, params)
    facts = {**found, "reason": "this is the JSON in the text, without the text around it"}
    return msgspec.structs.replace(made, metadata={**made.metadata, "projection": facts})


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


def _paged(
    made: Mapping[int, ProcessorResult], main: int, job: Look
) -> tuple[dict[int, bytes], dict[str, Any]]:
    """As much of each as there is room for, and of the main one from an offset on."""
    texts = {index: one.content for index, one in made.items()}
    sizes = {index: length(text) for index, text in texts.items()}
    if sum(sizes.values()) <= job.room and not job.offset:
        return {index: _compacted(text[:], job) for index, text in texts.items()}, {}
    rooms = dict(zip(sizes, shares(list(sizes.values()), job.room), strict=True))
    pages: dict[int, bytes] = {}
    for index, text in texts.items():
        # The others were seen with the first page.
        if index != main and not job.offset:
            pages[index] = _beginning(text, rooms[index])
    shown = _page(made[main], job.offset, rooms[main])
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
        filters = _only_filters(self._job)
        if filters and self._opened.is_summed_up:
            left = self._job.room - sum(map(characters, texts))
            summary = self._summary(left)
            return self._done(blocks + self._blocks(summary), [*texts, *summary.values()], metadata, None)
        if filters or self._job.fresh:
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
        return self._done(blocks, list(texts.values()), metadata, structured)

    def _done(
        self, blocks: list[bytes], seen: list[bytes], metadata: Mapping[str, Any], structured: bytes | None
    ) -> Done:
        note = page_note(self._job.cache_id, metadata)
        if not self._opened.texts and self._opened.anatomy.structured is None:
            note += f"; the result has no text, but {_kinds(self._opened.anatomy)}"
        structured = None if structured is None else self._noted(structured, note)
        size, tokens = shown([*seen, note.encode()], structured)
        facts: dict[str, Any] = {
            "cache_id": self._job.cache_id,
            "original_size": self._opened.size,
            "processed_size": size,
            "original_tokens": self._opened.tokens,
            "processed_tokens": tokens,
            **metadata,
        }
        blocks.append(_text(note.encode()))
        kept = {key: value for key, value in self._opened.anatomy.members.items() if key in _KEPT}
        members = {"content": Raw(b"[" + b",".join(blocks) + b"]")} | kept
        if structured is not None:
            members["structuredContent"] = Raw(structured)
        return Done(
            result=encode_object(with_meta(members, facts)),
            original_size=self._opened.size,
            processed_size=size,
            original_tokens=self._opened.tokens,
            processed_tokens=tokens,
            metadata=dict(metadata),
            typed="resultType" in members,
        )

    def _noted(self, structured: bytes, note: str) -> bytes | None:
        """The structure with the note in it, unless that only repeats the id that was given.

        Several clients show a model `structuredContent` alone, and nothing can be added to an array.
        """
        if not self._job.fresh and note == page_note(self._job.cache_id, {}):
            return structured
        if first_sign(structured) != b"{":
            return None
        told: dict[str, Any] = {"notice": note, "cache_id": self._job.cache_id}
        upstream = outer_members(structured).get(NOTICE_MEMBER)
        if upstream is not None:
            told["upstream"] = upstream
        return with_notice(structured, told)


def _kinds(anatomy: Anatomy) -> str:
    kinds = Counter(block.type or "unknown" for block in anatomy.blocks)
    return ", ".join(f"{count} of type {kind}" for kind, count in kinds.items()) or "no content at all"


def _text(text: bytes) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text.decode(errors="replace")})
