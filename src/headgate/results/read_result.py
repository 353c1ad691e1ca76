"""Runs a read job: selects, projects, searches or pages a result, and renders the reply."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from headgate.results.compact_tables import to_compact_tables
from headgate.results.content import (
    Content,
    Scratch,
    character_count,
    count_characters,
    decode_elements,
    first_byte,
    is_json,
    json_lines,
    unescape_string,
)
from headgate.results.embedded_json import MainJson, decode_json_strings, extract_json, main_json
from headgate.results.explore.explore_processor import ExploreProcessor, explore_blocks
from headgate.results.jobs import JobResult, PageUnit, ProjectionParams, ReadJob, SearchMode, SearchParams
from headgate.results.json_paths import join_paths, resolve_path
from headgate.results.notices import page_note
from headgate.results.pagination import ReadProcessor, first_fitting_page, rows_page
from headgate.results.parsed_result import ParsedResult, starts_with_index
from headgate.results.pipeline import Pipeline, ProcessingError, Processor, ProcessorResult
from headgate.results.projection import ProjectionProcessor
from headgate.results.reply import job_result, size_facts, text_block, with_notice
from headgate.results.result_structure import top_level_members
from headgate.results.search.search_processor import SearchProcessor
from headgate.results.truncation import fair_shares, truncate_json, truncate_text
from headgate.schema.notice_compatibility import NOTICE_MEMBER

# Members that are about the call, not part of its output.
_CALL_MEMBERS = ("resultType", "isError", "_meta")


def read_result(parsed: ParsedResult, job: ReadJob, query: Processor | None = None) -> JobResult:
    """The reply to one call of a tool that reads stored results; `query` runs SQL."""
    try:
        return _run_read_job(parsed, job, query)
    except ProcessingError as refused:
        return JobResult(error=str(refused))


def _run_read_job(parsed: ParsedResult, job: ReadJob, query: Processor | None) -> JobResult:
    if (
        _only_filters(job)
        and not parsed.reads_as_one
        and not job.path
        # Fields that begin with the index of a block, as the paths of explore do, are those of one text.
        and not (parsed.is_mixed and starts_with_index(*_fields(job.projection)))
    ):
        return _filter_each_text(parsed, job)
    if job.exploration is not None and not job.exploration.path and parsed.is_mixed and parsed.values:
        outlines, metadata = explore_blocks(parsed.blocks, len(parsed.texts), job.exploration, parsed.scratch)
        return _ReadReply(parsed, job).of_texts(outlines, metadata)
    made = _run_processors(parsed, job, query)
    if made.error is not None:
        return JobResult(error=made.error)
    metadata, content = dict(made.metadata), made.content
    if _only_filters(job):
        shown = _page(made, job.offset, job.room)
        content, metadata["page"] = shown.content, dict(shown.metadata)
    return _ReadReply(parsed, job).of_texts([_compact(content[:], job)], metadata)


def _only_filters(job: ReadJob) -> bool:
    return job.projection is not None and job.search is None


def _fields(projection: ProjectionParams | None) -> tuple[str, ...]:
    return () if projection is None else (*projection.fields, *projection.exclude)


def _run_processors(parsed: ParsedResult, job: ReadJob, query: Processor | None) -> ProcessorResult:
    scratch = parsed.scratch
    processors: list[Processor] = [
        ProjectionProcessor(),
        SearchProcessor(scratch=scratch),
        ExploreProcessor(scratch),
        ReadProcessor(scratch),
    ]
    pipeline = Pipeline(processors if query is None else [*processors, query])
    params = {
        "projection": job.projection,
        "search": job.search,
        "explore": job.exploration,
        "read": job.reading,
        "query": job.query,
    }
    content, main = _select_content(parsed, job)
    if job.search is None:
        return pipeline.run(content if main is None else main.content, params)
    made, form = _search_forms(lambda form: pipeline.run(form, params), content, main, job.search, scratch)
    if made.error is not None:
        return made
    found = {**made.metadata["search"], **_hit_locations(made, form, parsed, job, is_written=form is content)}
    return msgspec.structs.replace(made, metadata={**made.metadata, "search": found})


def _select_content(parsed: ParsedResult, job: ReadJob) -> tuple[Content, MainJson | None]:
    """The content to work on, and the JSON in it where it is a text with little else."""
    scratch = parsed.scratch
    if job.path:
        where = resolve_path(parsed.content_for_paths(job.path), job.path, scratch)
        content = unescape_string(where.value, scratch) if where.path else where.value
        if job.projection is not None:
            return extract_json(content, scratch) or content, None
        return content, main_json(content, scratch)
    inner = next((part.path for part in (job.exploration, job.reading, job.query) if part is not None), "")
    if inner.strip():
        return parsed.content_for_paths(inner), None
    if job.projection is not None:
        return parsed.content_for_paths(*_fields(job.projection)), None
    if job.reading is not None and job.reading.unit in (PageUnit.LINES, PageUnit.CHARACTERS):
        return parsed.original_text, None
    pages_text = job.reading is not None and job.reading.unit is not PageUnit.ELEMENTS
    shows_text = pages_text or job.exploration is not None
    by_context = job.search is not None and job.search.mode is SearchMode.CONTEXT
    return parsed.document.content, None if shows_text or by_context else parsed.main


def _page(made: ProcessorResult, offset: int, room: int) -> ProcessorResult:
    """A page of a projection: rows of a table, elements or lines of any other content."""
    separator = made.metadata.get("projection", {}).get("separator")
    if separator is None:
        return first_fitting_page(made.content, offset, room)
    return rows_page(made.content, separator, offset, room)


def _filter_each_text(parsed: ParsedResult, job: ReadJob) -> JobResult:
    """Project each text in its place, and `structuredContent` likewise."""
    texts = parsed.compact_texts or {-1: parsed.document.content}
    made = {index: _project_text(parsed, index, text, job) for index, text in texts.items()}
    for one in made.values():
        if one.error is not None:
            return JobResult(error=one.error)
    # The metadata is that of the largest text with any of the fields.
    main = max(made, key=lambda index: (made[index].applied, made[index].original_size))
    metadata = dict(made[main].metadata)
    pages, paging = _page_texts(made, main, job)
    if paging:
        metadata["page"] = paging
    room = job.room - sum(map(character_count, pages.values()))
    structured = _project_structured(parsed, job, room) if parsed.texts and not paging else None
    return _ReadReply(parsed, job).of_filtered_texts(pages, structured, metadata)


def _project_text(parsed: ParsedResult, index: int, text: Content, job: ReadJob) -> ProcessorResult:
    """What remains of a text, or of the JSON in it where that has one of the fields."""
    pipeline, params = Pipeline([ProjectionProcessor()]), {"projection": job.projection}
    # JSON Lines stay JSON Lines.
    value = parsed.values.get(index, text) if json_lines(text) is None else text
    made = pipeline.run(value, params)
    if value is text or made.error is not None:
        return made
    found = made.metadata["projection"]
    is_main = main_json(text, parsed.scratch) is not None
    if not is_main and len(found.get("fields_not_found", ())) == len(found["fields"]):
        return pipeline.run(text, params)
    facts = {**found, "reason": "this is the JSON in the text, without the text around it"}
    return msgspec.structs.replace(made, metadata={**made.metadata, "projection": facts})


def _project_structured(parsed: ParsedResult, job: ReadJob, room: int) -> bytes | None:
    """The projected `structuredContent`, if it has the fields and fits.

    Many servers wrap a text into an object there that has none of the fields of the text.
    """
    if parsed.structure.structured is None:
        return None
    structured = bytes(parsed.structure.structured)
    made = Pipeline([ProjectionProcessor()]).run(structured, {"projection": job.projection})
    missing = made.metadata.get("projection", {}).get("fields_not_found")
    if made.error is not None or missing or count_characters(made.content) > room:
        return None
    return made.content[:]


def _page_texts(
    made: Mapping[int, ProcessorResult], main: int, job: ReadJob
) -> tuple[dict[int, bytes], dict[str, Any]]:
    """As much of each text as fits, for the main one from an offset on."""
    texts = {index: one.content for index, one in made.items()}
    sizes = {index: count_characters(text) for index, text in texts.items()}
    if sum(sizes.values()) <= job.room and not job.offset:
        return {index: _compact(text[:], job) for index, text in texts.items()}, {}
    rooms = dict(zip(sizes, fair_shares(list(sizes.values()), job.room), strict=True))
    others = {index: text for index, text in texts.items() if index != main}
    # The first page has shown the others.
    pages = {} if job.offset else {index: _beginning(text, rooms[index]) for index, text in others.items()}
    shown = _page(made[main], job.offset, rooms[main])
    pages[main] = _compact(shown.content[:], job)
    metadata = dict(shown.metadata)
    if any(sizes[index] > rooms[index] for index in others):
        metadata["other_texts"] = "cut"
    return pages, metadata


def _beginning(text: Content, room: int) -> bytes:
    if count_characters(text) <= room:
        return text[:]
    return (truncate_json(text, room) if is_json(text) else truncate_text(text, room)).content


def _compact(content: bytes, job: ReadJob) -> bytes:
    """JSON with its arrays as tables, if the job allows it and that saves tokens."""
    return (to_compact_tables(content) or content) if job.compact and is_json(content) else content


@dataclass(frozen=True, slots=True)
class _ReadReply:
    """Renders the reply of a read job."""

    parsed: ParsedResult
    job: ReadJob

    def of_texts(self, texts: list[bytes], metadata: Mapping[str, Any]) -> JobResult:
        """The texts, the other blocks if the agent has not seen them, and the note."""
        blocks = [text_block(text) for text in texts]
        filters = _only_filters(self.job)
        if filters and self.parsed.text_is_summary:
            # With the texts that summarise `structuredContent`, as far as they fit.
            left = self.job.room - sum(map(character_count, texts))
            rooms = fair_shares(list(self.parsed.sizes.values()), max(left, 0))
            shares = zip(self.parsed.texts.items(), rooms, strict=True)
            summary = {index: _beginning(text, room) for (index, text), room in shares}
            return self._result(blocks + self._blocks(summary), [*texts, *summary.values()], metadata, None)
        if filters or self.job.fresh:
            blocks += self._blocks({})
        return self._result(blocks, texts, metadata, None)

    def _blocks(self, texts: Mapping[int, bytes]) -> list[bytes]:
        """The blocks with these texts, and those without a text."""
        return [
            bytes(block.raw) if block.text is None else block.with_text(texts[index])
            for index, block in enumerate(self.parsed.structure.blocks)
            if block.text is None or index in texts
        ]

    def of_filtered_texts(
        self, texts: Mapping[int, bytes], structured: bytes | None, metadata: Mapping[str, Any]
    ) -> JobResult:
        """The blocks of the result with projected texts."""
        blocks = ([text_block(texts[-1])] if -1 in texts else []) + self._blocks(texts)
        return self._result(blocks, list(texts.values()), metadata, structured)

    def _result(
        self, blocks: list[bytes], texts: list[bytes], metadata: Mapping[str, Any], structured: bytes | None
    ) -> JobResult:
        note = page_note(self.job.cache_id, metadata)
        structure = self.parsed.structure
        if not self.parsed.texts and structure.structured is None:
            kinds = Counter(block.type or "unknown" for block in structure.blocks)
            types = ", ".join(f"{count} of type {kind}" for kind, count in kinds.items())
            note += f"; the result has no text, but {types or 'no content at all'}"
        structured = None if structured is None else self._with_note(structured, note)
        facts = size_facts(self.parsed, self.job.cache_id, [*texts, note.encode()], structured)
        members = {key: value for key, value in structure.members.items() if key in _CALL_MEMBERS}
        if structured is not None:
            members["structuredContent"] = Raw(structured)
        blocks = [*blocks, text_block(note.encode())]
        return job_result(members, blocks, {**facts, **metadata}, dict(metadata))

    def _with_note(self, structured: bytes, note: str) -> bytes | None:
        """The structuredContent with the note in it, unless the note has only the known id.

        Several clients show a model `structuredContent` alone, and nothing can be added to an array.
        """
        if not self.job.fresh and note == page_note(self.job.cache_id, {}):
            return structured
        if first_byte(structured) != b"{":
            return None
        notice_fields: dict[str, Any] = {"notice": note, "cache_id": self.job.cache_id}
        upstream = top_level_members(structured).get(NOTICE_MEMBER)
        if upstream is not None:
            notice_fields["upstream"] = upstream
        return with_notice(structured, notice_fields)


def _search_forms(
    run: Callable[[Content], ProcessorResult],
    content: Content,
    main: MainJson | None,
    search: SearchParams,
    scratch: Scratch,
) -> tuple[ProcessorResult, Content]:
    """The output of `run` and the form of the content that it matched in.

    The JSON comes first, with the JSON in its strings decoded, then the content as it is written: a pattern
    may match a string as it is escaped, or the text around the JSON.
    """
    json = content if main is None else main.content
    forms = [content]
    if is_json(json) or json_lines(json) is not None:
        every = (decode_json_strings(json, scratch), json, content)
        # Mostly the same object.
        forms = list({id(form): form for form in every}.values())
    first: tuple[ProcessorResult, Content] | None = None
    for form in forms:
        made = run(form)
        if made.error is not None or made.metadata["search"]["matches"]:
            if main is not None and form is not content:
                made = _with_matches_around(made, main, search)
            return made, form
        first = first or (made, form)
    return first or (run(content), content)


def _with_matches_around(made: ProcessorResult, main: MainJson, search: SearchParams) -> ProcessorResult:
    """The result, with the number of matches in the text around the JSON, which it does not show."""
    if made.error is not None or search.mode is not SearchMode.REGEX or not main.around.strip():
        return made
    matches_around = SearchProcessor().process(main.around, search).metadata["matches"]
    if not matches_around:
        return made
    reason = f"{matches_around:,} more in the text around the JSON: proxy_read shows it with unit lines"
    found = {**made.metadata["search"], "reason": reason}
    return msgspec.structs.replace(made, metadata={**made.metadata, "search": found})


_MOST_POSITIONS = 20


def _hit_locations(
    made: ProcessorResult, form: Content, parsed: ParsedResult, job: ReadJob, *, is_written: bool
) -> dict[str, Any]:
    """Metadata to add to a search of `form`: blocks, positions and paths of its hits.

    `is_written` says whether the form is the content itself, or JSON that was found in it.
    """
    search_facts = made.metadata["search"]
    if job.projection is not None:
        return {}
    if job.path:
        return _below_path(made, form if is_written else b"", parsed, job) if search_facts.get("cut") else {}
    texts = _SearchedTexts(parsed, form, is_written=is_written)
    facts: dict[str, Any] = {}
    if texts.are_several:
        facts["blocks"] = texts.blocks(made.places, made.elements)
    if search_facts.get("cut") and made.places:
        facts["positions"] = texts.positions(made.places[:_MOST_POSITIONS])
    facts["path"] = texts.path(str(search_facts.get("path", "")))
    return {name: value for name, value in facts.items() if value}


def _below_path(made: ProcessorResult, text: Content, parsed: ParsedResult, job: ReadJob) -> dict[str, Any]:
    """The path of a truncated string from the root; none if the search path selects several values."""
    search_facts = made.metadata["search"]
    where = resolve_path(parsed.content_for_paths(job.path), job.path, parsed.scratch)
    if where.gathered:
        return {"path": "", "positions": []}
    if "path" in search_facts:
        return {"path": join_paths(where.path, str(search_facts["path"]))}
    places = made.places[:_MOST_POSITIONS]
    if not places or not text or is_json(text):
        return {}
    return {"path": where.path, "positions": [count_characters(memoryview(text)[:start]) for start in places]}


class _SearchedTexts:
    """The texts of a result and their positions in the searched content."""

    def __init__(self, parsed: ParsedResult, form: Content, *, is_written: bool) -> None:
        self._parsed = parsed
        self._form = form
        self._is_written = is_written
        self._is_structure = parsed.text_is_summary or not parsed.texts
        self._indexes = list(parsed.compact_texts)

    @cached_property
    def _starts(self) -> list[int]:
        if not self._is_written:
            # Only commas and white space are between the elements of an array.
            starts, position = list[int](), 0
            for element in decode_elements(self._form):
                starts.append(self._form.find(bytes(element), position))
                position = starts[-1] + len(element)
            return starts
        # After the bracket, with one byte between two of them.
        first = 1 if self._parsed.document.json and self.are_several else 0
        texts = self._parsed.compact_texts.values()
        return list(accumulate((len(text) + 1 for text in texts), initial=first))[:-1]

    @property
    def _only(self) -> int | None:
        """The block with all the JSON that was searched, if it is one of several."""
        main = None if self._is_written else self._parsed.main
        return None if main is None else main.block

    @property
    def are_several(self) -> bool:
        return len(self._parsed.texts) > 1 and not self._is_structure

    def blocks(self, places: Sequence[int], elements: Sequence[int]) -> list[int]:
        if self._only is not None:
            return [self._only] * max(len(places), len(elements))
        if not (elements or self._is_written or is_json(self._form)):
            return []
        numbers = elements or [bisect_right(self._starts, start) - 1 for start in places]
        return [self._indexes[number] for number in numbers]

    def path(self, inner: str) -> str:
        """The path of a string for proxy_read, where a leading index would be that of a text; else none."""
        if self._only is None or not starts_with_index(inner):
            return ""
        return f"[{self._indexes.index(self._only)}]{inner}"

    def positions(self, places: Sequence[int]) -> list[int]:
        """The characters before each hit in the original text; none where another form was searched."""
        if self._is_structure or self._parsed.document.json or not self._is_written:
            return []
        lengths = [count_characters(self._parsed.texts[index]) + 1 for index in self._indexes]
        before = list(accumulate(lengths, initial=0))
        found = []
        for start in places:
            number = bisect_right(self._starts, start) - 1
            index = self._indexes[number]
            text = self._parsed.texts[index]
            if text is self._parsed.compact_texts[index]:
                found.append(
                    before[number] + count_characters(memoryview(text)[: start - self._starts[number]])
                )
        return found
