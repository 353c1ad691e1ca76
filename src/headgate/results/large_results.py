"""Truncates large results, stores them whole, and answers the tools that read them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InvalidArguments,
    ResourceExhausted,
    ResponseNotStored,
    ResultNotFound,
    WorkerLimitExceeded,
)
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall, result_owner_of
from headgate.domain.payload import Payload, SpooledPayload
from headgate.results.content import MemoryScratch
from headgate.results.jobs import ExcerptJob, Job, JobResult, ReadJob
from headgate.results.notices import (
    MESSAGE,
    SpoofedNotices,
    fill_placeholders,
    format_minutes,
    unprocessed_result,
)
from headgate.results.parsed_result import ParsedResult
from headgate.results.pipeline import ProcessingError
from headgate.results.result_store import ResultStore, new_cache_id, open_stored
from headgate.results.result_structure import parse_envelope, visible_size
from headgate.results.token_estimate import characters_for_tokens, estimate_tokens
from headgate.results.tools import NAMES, ReadRequest, parse_read_request

# The excerpt's share of the limit: enough to recognise the result.
_SHOWN_SHARE = 4


class TruncationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which results are truncated, and to what size."""

    # In characters.
    max_size: int = 8000
    max_tokens: int | None = None
    truncates: bool = True
    style: Literal["cache", "head_tail"] = "cache"
    # None is a quarter of the limit.
    excerpt_size: int | None = None
    message: str = MESSAGE
    compact: bool = False
    kept_seconds: float = 300.0

    @property
    def excerpt_characters(self) -> int:
        """The most characters of the text in an excerpt."""
        most = self.reply_characters
        if self.style == "head_tail":
            return most
        return min(most, self.excerpt_size or max(1, most // _SHOWN_SHARE))

    @property
    def reply_characters(self) -> int:
        """The most characters of the reply of a tool that reads results."""
        if self.max_tokens is None:
            return self.max_size
        return max(1, min(self.max_size, characters_for_tokens(self.max_tokens)))


log = logging.getLogger("headgate.results")

# Parsing and truncating so much takes a millisecond, a few in the worst case.
_INLINE_EXCERPT_BYTES: Final = 32 * 1024
# A job on so little takes about as long as sending it to a worker.
_INLINE_READ_BYTES: Final = 4 * 1024
_TOOL_CALL: Final = "tools/call"
_RETRY_HINT: Final = "correct it and call again"


class JobWorkers(Protocol):
    """Runs jobs in worker processes."""

    async def run_in_worker(self, job: Job, agent: str, entry: str, content: Payload) -> JobResult:
        """The job's result; raises ResourceExhausted, or WorkerLimitExceeded when it takes too much."""


class JobRunner(Protocol):
    """Runs jobs in this process, at once."""

    def run_job(self, job: Job, parsed: ParsedResult) -> JobResult:
        """The result of the job; raises ProcessingError."""

    def validate_job(self, job: ReadJob) -> bool:
        """Whether the job is cheap on a small result; raises ProcessingError for a mistake."""


class _OutputSchemaField(msgspec.Struct):
    outputSchema: Raw = Raw(b"")  # noqa: N815 (the protocol's spelling)


class LargeResults:
    """Truncates the results that clients get, stores them whole, and reads stored ones."""

    def __init__(
        self,
        store: ResultStore,
        workers: JobWorkers,
        load_runner: Callable[[], Awaitable[JobRunner]],
        settings: TruncationSettings,
        tools_listed: Callable[[McpRequest], bool],
    ) -> None:
        """`load_runner` imports the job runner on first use.

        `tools_listed` says whether a client can call the tools that read stored results by their names.
        """
        self.metrics = ResultMetrics()
        self._store = store
        self._workers = workers
        self._load_runner = load_runner
        self._settings = settings
        self._notices = SpoofedNotices(settings.message)
        self._tools_listed = tools_listed
        # A character takes at least one byte, and a token at least one character.
        self._never_truncated_bytes = min(settings.max_size, settings.max_tokens or settings.max_size)

    def passes_unchanged(self, response: McpResponse) -> bool:
        """Whether the client gets the answer as it is: small, and without a spoofed notice."""
        result = response.result
        if not isinstance(result, bytes):
            return False
        if len(result) > self._never_truncated_bytes and self.may_exceed_limit(response):
            return False
        escape, member, opening = self._notices.signs
        return escape not in result and member not in result and opening not in result

    def may_exceed_limit(self, response: McpResponse) -> bool:
        """Whether the response may be too large; it runs for every response, so it parses none."""
        result = response.result
        if response.error or response.sized or not self._settings.truncates:
            return False
        size = len(result) if isinstance(result, bytes) else result.size
        return size > self._never_truncated_bytes

    def mark_spoofed_notices(self, response: McpResponse) -> McpResponse:
        """The response with upstream text marked that imitates a notice of the gateway."""
        result = response.result
        if not isinstance(result, bytes):
            return response
        marked = self._notices.mark(result)
        return response if marked is result else msgspec.structs.replace(response, result=marked)

    async def mark_spoofed_notices_on_disk(self, response: McpResponse) -> McpResponse:
        """As `mark_spoofed_notices`, also for a result on disk."""
        result = response.result
        if isinstance(result, bytes):
            return self.mark_spoofed_notices(response)
        with _closed_on_failure(result):
            marked = await asyncio.to_thread(self._notices.mark_on_disk, result)
        return response if marked is result else msgspec.structs.replace(response, result=marked)

    async def truncate_if_large(self, call: UpstreamCall, response: McpResponse) -> McpResponse:
        """The response itself if it is small enough, otherwise an excerpt; the whole result is stored.

        Raises ResponseNotStored.
        """
        result = response.result
        quick = isinstance(result, bytes) and len(result) <= _INLINE_EXCERPT_BYTES
        if isinstance(result, bytes) and quick:
            most = self._settings.max_tokens
            has_many_tokens = most is not None and estimate_tokens(result) > most
            if not has_many_tokens and visible_size(result) <= self._settings.max_size:
                return self.mark_spoofed_notices(response)
        agent = result_owner_of(call.request.session, call.request.caller)
        job = self._excerpt_job(call, new_cache_id())
        with _closed_on_failure(result):
            done = await self._run_excerpt(job, agent, response, quick=quick)
        if not done.result:
            if done.error is not None:
                log.warning("result shown whole", extra={"tool": call.item.public_name, "reason": done.error})
            return await self.mark_spoofed_notices_on_disk(response)
        await self._store_whole(agent, call, result, job.cache_id)
        self.metrics.count_excerpt(done)
        return msgspec.structs.replace(response, result=done.result)

    async def _run_excerpt(
        self, job: ExcerptJob, agent: str, response: McpResponse, *, quick: bool
    ) -> JobResult:
        """The excerpt of a result; the upstream has already acted, so there always is one."""
        result = response.result
        try:
            return await self._run(job, agent, job.cache_id, result, quick=quick)
        except (ResourceExhausted, WorkerLimitExceeded) as stopped:
            log.warning("result not opened", extra={"entry": job.cache_id, "reason": stopped.message})
            error = stopped
        if isinstance(result, bytes):
            # In memory its size is bounded; truncating it here only takes longer.
            return await asyncio.to_thread(_run_inline, await self._load_runner(), job, result)
        if job.output_schema is not None or not job.tool_known:
            # Clients reject a result that does not satisfy its output schema.
            return JobResult()
        stand_in = unprocessed_result(
            job.message, job.cache_id, result.size, error.message, typed=response.typed
        )
        # The result was not parsed; the notice also assumes four bytes for a token.
        return JobResult(
            result=stand_in,
            original_size=result.size,
            processed_size=len(stand_in),
            original_tokens=result.size // 4,
            processed_tokens=estimate_tokens(stand_in),
        )

    def is_result_tool(self, tool: str) -> bool:
        """Whether the gateway's own tool of that name reads large results."""
        return tool in NAMES

    async def parse_read_request(self, request: McpRequest) -> ReadRequest:
        """The parameters of a call of a tool that reads results; raises InvalidArguments."""
        read_request = parse_read_request(request.name, request.params, self._settings.reply_characters)
        try:
            cheap = (await self._load_runner()).validate_job(read_request.job)
        except ProcessingError as refused:
            self.metrics.refused += 1
            raise InvalidArguments(request.name, str(refused).rstrip("."), hint=_RETRY_HINT) from refused
        return msgspec.structs.replace(read_request, cheap=cheap)

    async def read_stored(self, request: McpRequest, read_request: ReadRequest) -> tuple[str, McpResponse]:
        """The tool that the stored result is of, and the requested part.

        Raises ResultNotFound, InvalidArguments, ResourceExhausted and WorkerLimitExceeded.
        """
        agent = result_owner_of(request.session, request.caller)
        async with open_stored(self._store, agent, read_request.cache_id) as entry:
            if entry is None:
                self.metrics.refused += 1
                raise ResultNotFound(read_request.cache_id)
            job = msgspec.structs.replace(read_request.job, cache_id=read_request.cache_id)
            done = await self._run_read(job, agent, entry.content, cheap=read_request.cheap)
            return entry.tool_name, McpResponse(done.result, typed=done.typed)

    async def read_new(
        self, call: UpstreamCall, read_request: ReadRequest, response: McpResponse
    ) -> McpResponse:
        """The requested part of a new result, which is stored whole; raises as `read_stored`."""
        if response.error or not _is_readable(response.result, read_request):
            if self.may_exceed_limit(response):
                return await self.truncate_if_large(call, response)
            return self.mark_spoofed_notices(response)
        agent = result_owner_of(call.request.session, call.request.caller)
        cache_id = new_cache_id()
        await self._store_whole(agent, call, response.result, cache_id)
        job = msgspec.structs.replace(read_request.job, cache_id=cache_id, fresh=True)
        async with open_stored(self._store, agent, cache_id) as entry:
            if entry is None:
                raise ResultNotFound(cache_id)
            try:
                done = await self._run_read(job, agent, entry.content, cheap=read_request.cheap)
            except HeadgateError as error:
                # A mistake in a path must not make the agent repeat the call.
                error.effect, error.retryable = Effect.DONE, False
                error.hint += f"; {call.item.public_name} was called, and its result is cache_id {cache_id}"
                raise
        return msgspec.structs.replace(response, result=done.result)

    async def _run_read(self, job: ReadJob, agent: str, content: Payload, *, cheap: bool) -> JobResult:
        quick = cheap and isinstance(content, bytes) and len(content) <= _INLINE_READ_BYTES
        done = await self._run(job, agent, job.cache_id, content, quick=quick)
        if done.error is not None:
            self.metrics.refused += 1
            raise InvalidArguments(job.tool, done.error.rstrip("."), hint=_RETRY_HINT)
        self.metrics.count_read(job.tool, done, fresh=job.fresh)
        # The page note begins differently from a notice, so it stays unmarked.
        return msgspec.structs.replace(done, result=self._notices.mark_texts(done.result))

    async def _run(self, job: Job, agent: str, entry: str, content: Payload, *, quick: bool) -> JobResult:
        if not quick or not isinstance(content, bytes):
            return await self._workers.run_in_worker(job, agent, entry, content)
        return _run_inline(await self._load_runner(), job, content)

    async def _store_whole(self, agent: str, call: UpstreamCall, result: Payload, cache_id: str) -> None:
        """Store a result; raises ResponseNotStored."""
        request = call.request
        arguments = bytes(request.params.get("arguments", b"{}"))
        try:
            await self._store.put(agent, result, request.name, arguments, id=cache_id)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            log.warning("result not stored", extra={"tool": request.name, "reason": reason})
            raise ResponseNotStored(call.item.server, request.name, reason) from error

    def _excerpt_job(self, call: UpstreamCall, cache_id: str) -> ExcerptJob:
        settings = self._settings
        names = ", ".join(NAMES[:-1]) + f" or {NAMES[-1]}"
        known = {
            "minutes": format_minutes(settings.kept_seconds),
            "tools": names if self._tools_listed(call.request) else f"call_tool and one of {names}",
        }
        return ExcerptJob(
            cache_id=cache_id,
            limit=settings.max_size,
            limit_tokens=settings.max_tokens,
            room=settings.excerpt_characters,
            style=settings.style,
            output_schema=_output_schema(call),
            # The tool of a task from before a restart is not.
            tool_known=call.request.method == _TOOL_CALL or bool(call.item.definition),
            message=fill_placeholders(settings.message, known),
            compact=settings.compact,
        )


def _run_inline(runner: JobRunner, job: Job, content: bytes) -> JobResult:
    try:
        return runner.run_job(job, ParsedResult(content, MemoryScratch()))
    except ProcessingError as refused:
        return JobResult(error=str(refused))


def _is_readable(result: Payload, read_request: ReadRequest) -> bool:
    """Whether the job applies: not to an input request, nor a search to a failed call."""
    if not isinstance(result, bytes):
        return True
    outside = parse_envelope(result)
    return outside.complete and (not outside.failed or read_request.job.projection is not None)


def _output_schema(call: UpstreamCall) -> bytes | None:
    """The tool's output schema; the listed one admits the notice of an excerpt."""
    try:
        return bytes(msgspec.json.decode(call.item.definition, type=_OutputSchemaField).outputSchema) or None
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


@contextmanager
def _closed_on_failure(payload: Payload) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if isinstance(payload, SpooledPayload):
            payload.close()
        raise


class ResultMetrics:
    """Counters of excerpts, reads, and the characters and tokens that they saved."""

    def __init__(self) -> None:
        self.excerpts = 0
        self.reads_by_tool: dict[str, int] = {}
        self.refused = 0
        self.characters_received = 0
        self.characters_shown = 0
        # Estimates.
        self._tokens_received = 0
        self._tokens_shown = 0

    def count_excerpt(self, done: JobResult) -> None:
        self.excerpts += 1
        self._count(done, received=True)

    def count_read(self, tool: str, done: JobResult, *, fresh: bool) -> None:
        """A tool has read a result; a fresh one would otherwise have been shown whole."""
        self.reads_by_tool[tool] = self.reads_by_tool.get(tool, 0) + 1
        self._count(done, received=fresh)

    def _count(self, done: JobResult, *, received: bool) -> None:
        self.characters_received += received * done.original_size
        self._tokens_received += received * done.original_tokens
        self.characters_shown += done.processed_size
        self._tokens_shown += done.processed_tokens

    @property
    def saved_tokens(self) -> int:
        """An estimate of the tokens saved by not showing every result whole."""
        return max(0, self._tokens_received - self._tokens_shown)

    def counters(self) -> dict[tuple[str, str], int]:
        """By name and label."""
        return {
            ("results_excerpted", ""): self.excerpts,
            ("result_reads_refused", ""): self.refused,
            ("result_characters_received", ""): self.characters_received,
            ("result_characters_shown", ""): self.characters_shown,
            **{("result_reads", f'{{tool="{tool}"}}'): count for tool, count in self.reads_by_tool.items()},
        }
