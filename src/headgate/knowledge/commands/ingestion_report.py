"""Reports the progress and the result of an ingestion."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from headgate.domain.terminal import ProgressPrinter, format_speed, printable, table_lines
from headgate.knowledge.commands.answer_tables import counted_noun, json_document, line_width
from headgate.knowledge.ingestion.document_source import UnreadableFile
from headgate.knowledge.ingestion.pipeline import IngestionSummary
from headgate.knowledge.readers.format_registry import known_extensions

# Lines about unreadable files; the JSON document has all of them.
_MOST_FAILED: Final = 20
# Files per line with a common reason.
_MOST_NAMED: Final = 3
# The advice for searches, and what replaces it for an ingestion.
_WHEN_IT_ANSWERS: Final = "vectors follow when the embedder answers again"
_WITH_THE_NEXT: Final = "the next ingestion makes the vectors that are missing"


class ImportedGraph(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    entities: int
    relationships: int


class IngestionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an ingestion; without documents where only graphs were imported."""

    documents: IngestionSummary | None = None
    graphs: tuple[ImportedGraph, ...] = ()
    # The files that triggered it; empty for a full run.
    changed: tuple[str, ...] = ()
    # Documents among those that were added or changed in which there is nothing to search.
    without_text: int = 0

    @property
    def failed(self) -> tuple[UnreadableFile, ...]:
        """The documents that could not be read."""
        return self.documents.failed if self.documents is not None else ()

    @property
    def all_failed(self) -> bool:
        """Whether there were files, and none of them could be read."""
        summary = self.documents
        if summary is None or summary.added or summary.changed or summary.unchanged:
            return False
        # After a removal, unreadable files may be all that is left.
        return bool(summary.failed or (summary.skipped and not summary.removed))

    @property
    def advice(self) -> str:
        """How to get missing vectors or readable files; or nothing."""
        if self.documents is None:
            return ""
        kinds = f"what can be read are {', '.join(known_extensions())}"
        notes = [
            kinds if self.all_failed and not self.failed else "",
            self.documents.advice.replace(_WHEN_IT_ANSWERS, _WITH_THE_NEXT),
        ]
        return "; ".join(filter(None, notes))


class IngestionProgress:
    """Shows how far an ingestion is, in files and in chunks."""

    def __init__(self, progress: ProgressPrinter) -> None:
        self._progress = progress
        self._read, self._files, self._file, self._embedded, self._chunks = 0, 0, "", 0, 0

    def report(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        """Update the progress of a phase; both phases run at once and share one line."""
        if phase == "read":
            self._read, self._files, self._file = done, total, file
        else:
            self._embedded, self._chunks = done, total
        made = {"files": self._read} | ({"chunks": self._embedded} if self._embedded else {})
        if self._read < self._files:
            self._progress.show_bar("reading", self._read, self._files, made, self._file)
        elif self._chunks:
            self._progress.show_bar("embedding", self._embedded, self._chunks, {"chunks": self._embedded})


def printed_summary(ingested: IngestionReport, *, as_json: bool) -> str:
    """The summary of an ingestion: a line for each kind of fact, or one JSON document."""
    if as_json:
        return json_document(_summary_document(ingested))
    facts = [f"{label:<8}{text}" for label, text in _facts(ingested)]
    return "\n".join([*facts, *_notes(ingested.failed, ingested.advice)])


class IngestionNews:
    """Renders one ingestion after the other; an unreadable file is reported once until it changes."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._failed: frozenset[UnreadableFile] = frozenset()
        self._advice = ""

    def render(self, ingested: IngestionReport, *, as_json: bool) -> str:
        """The time, what changed and the facts on one line, or one JSON document on one line."""
        if as_json:
            return msgspec.json.encode(_summary_document(ingested)).decode()
        changed = f"{_named(ingested.changed)}; " if ingested.changed else ""
        facts = "; ".join(f"{label}: {text}" for label, text in _facts(ingested))
        lines = [f"{self._now():%H:%M:%S}  {changed}{facts}"]
        if ingested.documents is not None:
            # Only what earlier ingestions did not have.
            known = self._failed
            anew = [one for one in ingested.failed if one not in known or one.file in ingested.changed]
            lines += _notes(anew, ingested.advice if ingested.advice != self._advice else "")
            self._failed, self._advice = frozenset(ingested.failed), ingested.advice
        return "\n".join(lines)


def _named(files: Collection[str]) -> str:
    first = sorted(files)[:_MOST_NAMED]
    more = len(files) - len(first)
    return printable(", ".join(first)) + (f" and {more:,} more" if more else "")


def _summary_document(ingested: IngestionReport) -> dict[str, Any]:
    graphs = [msgspec.structs.asdict(graph) for graph in ingested.graphs]
    if (summary := ingested.documents) is None:
        return {"graphs": graphs}
    return {
        **msgspec.structs.asdict(summary),
        "failed": [{"file": failure.file, "reason": failure.reason} for failure in summary.failed],
        "without_text": ingested.without_text,
        "chunks_per_second": round(summary.chunks_per_second, 1),
        "advice": ingested.advice,
        "graphs": graphs,
    }


def _facts(ingested: IngestionReport) -> Iterator[tuple[str, str]]:
    for graph in ingested.graphs:
        yield "graph", f"{printable(graph.file)}: {_of_graph(graph.entities, graph.relationships)}"
    if (summary := ingested.documents) is None:
        return
    skipped = ", ".join(
        f"{count:,} {printable(ending) or 'without an extension'}"
        for ending, count in sorted(summary.skipped.items())
    )
    files = {
        "added": summary.added,
        "changed": summary.changed,
        "unchanged": summary.unchanged,
        "removed": summary.removed,
        f"skipped ({skipped})": sum(summary.skipped.values()),
        "failed": len(summary.failed),
    }
    empty = ingested.without_text
    without = f"; {empty:,} without any text" if empty else ""
    yield "files", f"{_counts(files) or 'none'}{without}"
    chunks = {
        "added": summary.chunks_added,
        "kept": summary.chunks_kept,
        "removed": summary.chunks_removed,
        "given a vector": summary.vectors,
    }
    if counts := _counts(chunks):
        yield "chunks", counts
    if summary.entities or summary.relationships:
        # The store has each of them once, however many documents mention it.
        yield "found", f"{_of_graph(summary.entities, summary.relationships)}, counted in each document"
    fast = f", {format_speed(summary.chunks_per_second)} chunks/s" if summary.chunks_added else ""
    yield "time", f"{summary.seconds:.1f} s{fast}"


def _notes(failed: Sequence[UnreadableFile], advice: str) -> Iterator[str]:
    if failed:
        yield ""
        groups = list(_by_reason(failed))
        rows = [
            (files[0], reason)
            if len(files) == 1
            else (counted_noun(len(files), "file"), f"{reason}: {_named(files)}")
            for files, reason in groups[:_MOST_FAILED]
        ]
        yield from table_lines(("not read", "why"), rows, line_width())
        more = sum(len(files) for files, _ in groups[_MOST_FAILED:])
        if more:
            yield f"  and {more:,} more: --json names them all"
        elif any(len(files) > _MOST_NAMED for files, _ in groups):
            yield "  --json names them all"
    if advice:
        yield f"note: {advice}"


def _by_reason(failed: Iterable[UnreadableFile]) -> Iterator[tuple[list[str], str]]:
    """The failed files by reason; few files with one reason are listed one by one."""
    files: dict[str, list[str]] = {}
    for failure in failed:
        files.setdefault(failure.reason, []).append(failure.file)
    for reason, same in files.items():
        if len(same) > _MOST_NAMED:
            yield same, reason
        else:
            yield from (([file], reason) for file in same)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def _of_graph(entities: int, relationships: int) -> str:
    return f"{counted_noun(entities, 'entity', 'entities')} and {counted_noun(relationships, 'relationship')}"
