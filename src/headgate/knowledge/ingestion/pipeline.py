"""The ingestion pipeline: stores the chunks of new and changed files, and removes sources that are gone."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.knowledge.data_model import IngestedDocument, ReplaceResult, SourceRecord
from headgate.knowledge.ingestion import chunker
from headgate.knowledge.ingestion.document_source import (
    DocumentLibrary,
    DocumentSection,
    DocumentUnreadable,
    FileInventory,
    ListedFile,
    ParsedDocument,
    ReadDocument,
    SourceDigest,
    SourceRoots,
    UnreadableFile,
    short_hash,
)
from headgate.knowledge.ingestion.embedding_backlog import EmbeddingBacklog, IngestionProgressListener, Sleep
from headgate.knowledge.interfaces import AsyncEmbedder, EntityExtractor, IndexWriter
from headgate.search.text_analysis import words

log = logging.getLogger("headgate.knowledge")

# Documents that were read and wait to be stored: each may be large.
_READ_AHEAD: Final = 2
# Characters in which a title may stand in the text itself.
_TITLE_SEARCH_CHARACTERS: Final = 400
# Characters of a category or a kind of document, and of a title: they stand in many an answer.
_LONGEST_WORD: Final = 100
_LONGEST_TITLE: Final = 300
# Documents of a directory that do not leave all at once: it may be a disk that is not there now.
_SEVERAL: Final = 2
# Files per step: a whole tree at once would block other writers.
_REMOVED_AT_ONCE: Final = 100


# None is the end.
_ReadQueue = asyncio.Queue[tuple[ListedFile, ReadDocument] | None]


class IngestionSummary(msgspec.Struct, frozen=True, kw_only=True):
    # Files.
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    # Files without a reader, by their extension.
    skipped: dict[str, int] = {}
    failed: tuple[UnreadableFile, ...] = ()
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    vectors: int = 0
    # Found in the documents that were added or changed.
    entities: int = 0
    relationships: int = 0
    seconds: float = 0.0
    # How to get missing vectors; empty when none is missing.
    advice: str = ""

    @property
    def chunks_per_second(self) -> float:
        """All chunks of the run, new or unchanged, per second."""
        return (self.chunks_added + self.chunks_kept) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class IngestionPipeline:
    """Brings a store up to date with a library of files; without `vectors` it is found by words alone."""

    store: IndexWriter
    library: DocumentLibrary
    _: KW_ONLY
    count: chunker.CountTokens
    extractor: EntityExtractor
    vectors: AsyncEmbedder | None = None
    clock: Callable[[], float] = time.time
    sleep: Sleep = asyncio.sleep

    async def run(
        self,
        progress: IngestionProgressListener,
        *,
        category: str = "",
        moved: bool = False,
        emptied: bool = False,
    ) -> IngestionSummary:
        """Read what is not in the store as it is now; each file is stored as a whole or not at all.

        `category` is of those that name none themselves; `moved` says that a root of a known name is that
        root at a new place, and `emptied` that one in which nothing is left is meant to be so: otherwise its
        documents stay, and it has failed. Raises ConfigError for roots that would mix and for an embedder
        that cannot be used, and StoreUnavailable.
        """
        started = time.monotonic()
        known = await self.store.source_digests()
        inventory = await self.library.inventory(SourceRoots(known))
        _refuse_ambiguous_roots(inventory, known, moved=moved)
        await self.store.reindex()
        backlog = EmbeddingBacklog(self.store, self.vectors, progress, self.sleep)
        await backlog.prepare()
        editions = (self.library.parser_version, chunker.CHUNKER_VERSION, self.extractor.version, category)
        intake = _IngestionRun(inventory, known, category, short_hash("\0".join(editions)), backlog, progress)
        if not emptied:
            intake.failed += intake.empty_now()
        await self._remove(intake, intake.gone())
        await self._read_and_store(intake)
        # After that, so that one which cannot be read now is there as it was.
        await self._remove(intake, intake.renamed())
        return intake.summary(time.monotonic() - started)

    async def _remove(self, intake: "_IngestionRun", files: Sequence[str]) -> None:
        for start in range(0, len(files), _REMOVED_AT_ONCE):
            some = files[start : start + _REMOVED_AT_ONCE]
            intake.counts["chunks_removed"] += await self.store.remove_sources(some)
            intake.counts["removed"] += len(some)

    async def _read_and_store(self, intake: "_IngestionRun") -> None:
        read: _ReadQueue = asyncio.Queue(_READ_AHEAD)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_all(intake, read))
                tasks.create_task(self._store_all(intake, read))
                tasks.create_task(intake.backlog.run())
        except ExceptionGroup as group:
            # One sentence is enough: the others stopped because of the first.
            first = group.exceptions[0]
            raise first from first.__cause__

    async def _read_all(self, intake: "_IngestionRun", read: _ReadQueue) -> None:
        files = intake.inventory.files
        for done, listed in enumerate(files):
            intake.progress.report("read", done, len(files), listed.file)
            await intake.backlog.wait_for_capacity()
            try:
                reading = await self.library.read(listed.file, intake.known_content(listed.file))
            except DocumentUnreadable as unreadable:
                intake.failed.append(UnreadableFile(listed.file, str(unreadable)))
            except Exception:
                log.exception("internal error %s while a document was read", intake.fail(listed.file))
            else:
                if reading is None:
                    intake.counts["unchanged"] += 1
                else:
                    await read.put((listed, reading))
        await read.put(None)

    async def _store_all(self, intake: "_IngestionRun", read: _ReadQueue) -> None:
        while (taken := await read.get()) is not None:
            listed, reading = taken
            try:
                # A large document takes seconds.
                document = await asyncio.to_thread(self._document, intake, listed, reading)
                replaced = await self.store.replace_document(document)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("internal error %s while a document was stored", intake.fail(listed.file))
            else:
                intake.count(document, replaced)
                intake.backlog.add_pending(replaced.added)
        intake.progress.report("read", len(intake.inventory.files), len(intake.inventory.files), "")
        intake.backlog.finish_input()

    def _document(
        self, intake: "_IngestionRun", listed: ListedFile, reading: ReadDocument
    ) -> IngestedDocument:
        parsed = reading.parsed
        chunks = chunker.chunk_document(listed.file, _with_title(parsed), self.count)
        entities, relationships = self.extractor.extract(chunks)
        category = parsed.category or intake.category or _category_from_path(listed.file)
        source = SourceRecord(
            file=listed.file,
            category=_short(category, _LONGEST_WORD),
            doc_type=_short(parsed.doc_type, _LONGEST_WORD),
            title=_short(parsed.title or PurePosixPath(listed.file).stem, _LONGEST_TITLE),
            date=parsed.date or _day(listed.modified),
            digest=intake.digest(listed.file, reading.digest),
            size_bytes=reading.size_bytes,
            chunks=len(chunks),
            ingested=self.clock(),
        )
        return IngestedDocument(source=source, chunks=chunks, entities=entities, relationships=relationships)


@dataclass(slots=True)
class _IngestionRun:
    """The state and the counters of one ingestion."""

    inventory: FileInventory
    known: dict[str, str]
    category: str
    edition: str
    backlog: EmbeddingBacklog
    progress: IngestionProgressListener
    # By the fields of the summary.
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[UnreadableFile] = field(init=False)
    there: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.failed = list(self.inventory.failed)
        self.there = {listed.file for listed in self.inventory.files}

    def gone(self) -> list[str]:
        """Files that were ingested from these roots and are not there any more."""
        return [
            file
            for file in sorted(self.known.keys() - self.there - self.inventory.taken_over.keys())
            if any(root.contains(file) for root in self.inventory.roots) and not self._has_failed(file)
        ]

    def renamed(self) -> list[str]:
        """Files that are not called so any more, and are there by their new names or not at all."""
        names = self.inventory.taken_over
        return [file for file in sorted(names.keys() - self.there) if not self._has_failed(names[file])]

    def empty_now(self) -> list[UnreadableFile]:
        """The roots that had several documents and have none any more: it may be a share that is away."""
        inventory, found = self.inventory, []
        leaving = [inventory.taken_over.get(file, file) for file in (*self.gone(), *self.renamed())]
        for root in inventory.roots:
            stay = sum(map(root.contains, leaving))
            # An excluded file proves that the directory is there.
            there = root.name in inventory.excluded_from or any(map(root.contains, self.there))
            if stay >= _SEVERAL and not there:
                reason = f"has no documents any more, and its {stay:,} stay; pass --emptied to remove them"
                found.append(UnreadableFile(root.name, reason))
        return found

    def _has_failed(self, file: str) -> bool:
        """Whether its content, or its existence, is unknown now."""
        return any(f"{file}/".startswith(f"{failure.file}/") for failure in self.failed)

    def known_content(self, file: str) -> str:
        """The SHA-256 that the file had when it was read from here in this way; empty when it was not."""
        known = self.known.get(file, "")
        content = SourceDigest.of(known).content
        return content if known == self.digest(file, content) else ""

    def digest(self, file: str, content: str) -> str:
        """The digest of a file: its content, the versions of its readers, and its location."""
        place = next((root.place for root in self.inventory.roots if root.contains(file)), "")
        return str(SourceDigest.made(content, self.edition, place))

    def fail(self, file: str) -> str:
        """Something was wrong with us and not with the file; returns what the log calls it."""
        entry = secrets.token_hex(6)
        reason = f"internal error {entry}: look for it in the log and report it"
        self.failed.append(UnreadableFile(file, reason))
        return entry

    def count(self, document: IngestedDocument, replaced: ReplaceResult) -> None:
        self.counts["changed" if document.source.file in self.known else "added"] += 1
        self.counts.update(
            chunks_added=replaced.added,
            chunks_kept=replaced.kept,
            chunks_removed=replaced.removed,
            entities=len(document.entities),
            relationships=len(document.relationships),
        )

    def summary(self, seconds: float) -> IngestionSummary:
        counts: dict[str, Any] = {**self.counts}
        return IngestionSummary(
            **counts,
            skipped=self.inventory.skipped,
            failed=tuple(self.failed),
            vectors=self.backlog.made,
            seconds=round(seconds, 3),
            advice=self.backlog.advice,
        )


def _with_title(parsed: ParsedDocument) -> tuple[DocumentSection, ...]:
    """The sections, with the title before the first one's text, unless that begins with it anyway.

    Queries often name a title that is only in the metadata.
    """
    if not parsed.title or not parsed.sections:
        return parsed.sections
    first, *rest = parsed.sections
    title = words(parsed.title)
    opening = words(" ".join((*first.path, first.text[: _TITLE_SEARCH_CHARACTERS + len(parsed.title)])))
    if any(opening[place : place + len(title)] == title for place in range(len(opening))):
        return parsed.sections
    return (msgspec.structs.replace(first, text=f"{parsed.title}\n\n{first.text}"), *rest)


def _day(seconds: float) -> str:
    """Empty for one that no calendar has: a disk may claim anything."""
    try:
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _refuse_ambiguous_roots(inventory: FileInventory, known: dict[str, str], *, moved: bool) -> None:
    roots = inventory.roots
    twice = [name for name, times in Counter(root.name for root in roots).items() if times > 1]
    if twice:
        raise ConfigError(
            f"two of the paths are called {twice[0]!r}, and their documents would mix",
            hint="ingest the directory above them, or rename one of them",
        )
    if moved:
        return
    for root in roots:
        places = {
            SourceDigest.of(digest).place
            for file, digest in known.items()
            if root.contains(file) and file not in inventory.taken_over
        }
        if places - {"", short_hash(root.place)}:
            raise ConfigError(
                f"documents of another {root.name!r} are in the store and would mix with those of this one",
                hint="rename one of the two, or pass --moved if it is the same one at a new place",
            )


def _category_from_path(file: str) -> str:
    """The first directory below the root, or else the root's name."""
    parts = file.split("/")
    if len(parts) == 1:
        return PurePosixPath(file).stem
    return parts[1] if len(parts) > 2 else parts[0]
