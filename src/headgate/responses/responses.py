"""Keeps large results outside of the conversation, and gives agents what they ask of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer, Call, Request, agent_of
from headgate.domain.errors import (
    AnswerNotStored,
    Effect,
    Exhausted,
    HeadgateError,
    InvalidArguments,
    ResultNotFound,
    WorkStopped,
)
from headgate.domain.payload import Payload, Spooled
from headgate.responses.anatomy import from_outside, measured
from headgate.responses.content import InMemory
from headgate.responses.jobs import Done, Excerpt, Job, Look
from headgate.responses.limits import Display
from headgate.responses.notice import filled, minutes, unopened
from headgate.responses.opened import Opened
from headgate.responses.processing import Refused
from headgate.responses.savings import Savings
from headgate.responses.server_notices import ServerNotices
from headgate.responses.store import ResultStore, new_id, reading
from headgate.responses.tokens import tokens_of
from headgate.responses.tools.arguments import Wanted, wanted
from headgate.responses.tools.names import NAMES

log = logging.getLogger("headgate.responses")

# Opening, measuring and cutting so much takes a millisecond, and a few of the worst kind.
_QUICKLY_CUT: Final = 32 * 1024
# Whatever is asked of so little is answered in about the time that it takes to ask somebody else.
_QUICKLY_READ: Final = 4 * 1024
_TOOL_CALL: Final = "tools/call"
_CORRECT: Final = "correct it and call again"


class Workers(Protocol):
    """Does what would take too long here."""

    async def do(self, job: Job, agent: str, entry: str, content: Payload) -> Done:
        """What came of the job; raises Exhausted, or WorkStopped when it took too long."""


class Work(Protocol):
    """Does it here, at once."""

    def perform(self, job: Job, opened: Opened) -> Done:
        """What came of it."""

    def check(self, job: Look) -> bool:
        """Whether little content means little work; raises Refused for a mistake."""


class _Output(msgspec.Struct):
    outputSchema: Raw = Raw(b"")  # noqa: N815 (the protocol's spelling)


class LargeResponses:
    """What clients are shown of results."""

    def __init__(
        self,
        store: ResultStore,
        workers: Workers,
        work: Callable[[], Awaitable[Work]],
        display: Display,
        listed: Callable[[Request], bool],
    ) -> None:
        """`work` is loaded when it is first needed.

        `listed` tells whether the tools that read stored results can be called by their names.
        """
        self.savings = Savings()
        self._store = store
        self._workers = workers
        self._work = work
        self._display = display
        self._notices = ServerNotices(display.message)
        self._listed = listed
        # No character takes less than a byte, and no token less than a character.
        self._certainly_small = min(display.max_size, display.max_tokens or display.max_size)

    def may_exceed_limit(self, answer: Answer) -> bool:
        """Whether the answer may be too large; asked of every answer, so it opens none."""
        result = answer.result
        if answer.error or answer.sized or not self._display.truncates:
            return False
        size = len(result) if isinstance(result, bytes) else result.size
        return size > self._certainly_small

    def mark_spoofed_notices(self, answer: Answer) -> Answer:
        """The answer, in which nothing that its server wrote looks like a notice of the gateway."""
        result = answer.result
        if not isinstance(result, bytes):
            return answer
        marked = self._notices.marked(result)
        return answer if marked is result else msgspec.structs.replace(answer, result=marked)

    async def mark_spoofed_notices_on_disk(self, answer: Answer) -> Answer:
        """The same of an answer whose result may be on disk."""
        result = answer.result
        if isinstance(result, bytes):
            return self.mark_spoofed_notices(answer)
        try:
            marked = await asyncio.to_thread(self._notices.marked_on_disk, result)
        except BaseException:
            _close(result)
            raise
        return answer if marked is result else msgspec.structs.replace(answer, result=marked)

    async def truncate_if_large(self, call: Call, answer: Answer) -> Answer:
        """The answer itself if it is small enough, otherwise a part of it and where the rest is."""
        result = answer.result
        quick = isinstance(result, bytes) and len(result) <= _QUICKLY_CUT
        if isinstance(result, bytes) and quick and not self._too_large(result):
            return self.mark_spoofed_notices(answer)
        agent = agent_of(call.request.owner, call.request.caller)
        job = self._excerpt(call, new_id())
        try:
            done = await self._cut(job, agent, answer, quick=quick)
        except BaseException:
            _close(result)
            raise
        if not done.result:
            if done.error is not None:
                log.warning("result shown whole", extra={"tool": call.item.public_name, "reason": done.error})
            return await self.mark_spoofed_notices_on_disk(answer)
        await self._keep(agent, call, result, job.cache_id)
        self.savings.excerpt(done)
        return msgspec.structs.replace(answer, result=done.result)

    async def _cut(self, job: Excerpt, agent: str, answer: Answer, *, quick: bool) -> Done:
        """What is shown of a result; whatever the upstream did was done, so there is always something."""
        result = answer.result
        try:
            return await self._done(job, agent, job.cache_id, result, quick=quick)
        except (Exhausted, WorkStopped) as stopped:
            log.warning("result not opened", extra={"entry": job.cache_id, "reason": stopped.message})
            error = stopped
        if isinstance(result, bytes):
            # It is of bounded size, and takes longer here than elsewhere.
            work = await self._work()
            return await asyncio.to_thread(_performed, work, job, result)
        if job.output_schema is not None or not job.tool_known:
            # Clients refuse a result without what its tool promises.
            return Done()
        stand_in = unopened(job.message, job.cache_id, result.size, error.message, typed=answer.typed)
        # Not opened, so that a token is taken for four bytes, as in the notice.
        return Done(
            result=stand_in,
            original_size=result.size,
            processed_size=len(stand_in),
            original_tokens=result.size // 4,
            processed_tokens=tokens_of(stand_in),
        )

    def is_result_tool(self, tool: str) -> bool:
        """Whether the gateway's own tool of that name reads large results."""
        return tool in NAMES

    async def parse_read_request(self, request: Request) -> Wanted:
        """What a call of a tool that reads results is about; raises InvalidArguments."""
        wish = wanted(request.name, request.params, self._display.reply_room)
        try:
            cheap = (await self._work()).check(wish.look)
        except Refused as refused:
            self.savings.refused += 1
            raise InvalidArguments(request.name, str(refused).rstrip("."), hint=_CORRECT) from refused
        return msgspec.structs.replace(wish, cheap=cheap)

    async def read_stored(self, request: Request, wish: Wanted) -> tuple[str, Answer]:
        """The tool that a stored result is of, and what was asked for of it.

        Raises ResultNotFound, InvalidArguments and others.
        """
        agent = agent_of(request.owner, request.caller)
        async with reading(self._store, agent, wish.cache_id) as entry:
            if entry is None:
                self.savings.refused += 1
                raise ResultNotFound(wish.cache_id)
            look = msgspec.structs.replace(wish.look, cache_id=wish.cache_id)
            done = await self._looked(look, agent, entry.content, cheap=wish.cheap)
            return entry.tool_name, Answer(done.result, typed=done.typed)

    async def read_new(self, call: Call, wish: Wanted, answer: Answer) -> Answer:
        """What was asked for of a result that has just come, which is stored whole; raises as `read`."""
        if answer.error or not _can_be_read(answer.result, wish):
            return (
                await self.truncate_if_large(call, answer)
                if self.may_exceed_limit(answer)
                else self.mark_spoofed_notices(answer)
            )
        agent = agent_of(call.request.owner, call.request.caller)
        cache_id = new_id()
        await self._keep(agent, call, answer.result, cache_id)
        look = msgspec.structs.replace(wish.look, cache_id=cache_id, fresh=True)
        async with reading(self._store, agent, cache_id) as entry:
            if entry is None:
                raise ResultNotFound(cache_id)
            try:
                done = await self._looked(look, agent, entry.content, cheap=wish.cheap)
            except HeadgateError as error:
                # It must not be called again for a mistake in a path.
                error.effect, error.retryable = Effect.DONE, False
                error.hint += f"; {call.item.public_name} was called, and its result is cache_id {cache_id}"
                raise
        return msgspec.structs.replace(answer, result=done.result)

    async def _looked(self, look: Look, agent: str, content: Payload, *, cheap: bool) -> Done:
        quick = cheap and isinstance(content, bytes) and len(content) <= _QUICKLY_READ
        done = await self._done(look, agent, look.cache_id, content, quick=quick)
        if done.error is not None:
            self.savings.refused += 1
            raise InvalidArguments(look.tool, done.error.rstrip("."), hint=_CORRECT)
        self.savings.look(look.tool, done, fresh=look.fresh)
        # The note below it begins in another way.
        return msgspec.structs.replace(done, result=self._notices.marked_texts(done.result))

    async def _done(self, job: Job, agent: str, entry: str, content: Payload, *, quick: bool) -> Done:
        if not quick or not isinstance(content, bytes):
            return await self._workers.do(job, agent, entry, content)
        return _performed(await self._work(), job, content)

    async def _keep(self, agent: str, call: Call, result: Payload, cache_id: str) -> None:
        """Store a result; raises AnswerNotStored."""
        request = call.request
        arguments = bytes(request.params.get("arguments", b"{}"))
        try:
            await self._store.put(agent, result, request.name, arguments, id=cache_id)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            log.warning("result not stored", extra={"tool": request.name, "reason": reason})
            raise AnswerNotStored(call.item.server, request.name, reason) from error

    def _too_large(self, result: bytes) -> bool:
        most = self._display.max_tokens
        return measured(result) > self._display.max_size or (most is not None and tokens_of(result) > most)

    def _excerpt(self, call: Call, cache_id: str) -> Excerpt:
        display = self._display
        names = ", ".join(NAMES[:-1]) + f" or {NAMES[-1]}"
        known = {
            "minutes": minutes(display.kept_seconds),
            "tools": names if self._listed(call.request) else f"call_tool and one of {names}",
        }
        return Excerpt(
            cache_id=cache_id,
            limit=display.max_size,
            limit_tokens=display.max_tokens,
            room=display.room,
            style=display.style,
            output_schema=_output_schema(call),
            tool_known=_tool_known(call),
            message=filled(display.message, known),
            compact=display.compact,
        )


def _performed(work: Work, job: Job, content: bytes) -> Done:
    try:
        return work.perform(job, Opened(content, InMemory()))
    except Refused as refused:
        return Done(error=str(refused))


def _can_be_read(result: Payload, wish: Wanted) -> bool:
    """A question is to be answered first, and a failure must not be missed by whoever looks for something."""
    if not isinstance(result, bytes):
        return True
    outside = from_outside(result)
    return outside.complete and (not outside.failed or wish.look.projection is not None)


def _tool_known(call: Call) -> bool:
    """Whether it is known whose result it is: of a task from before a restart it is not."""
    return call.request.method == _TOOL_CALL or bool(call.item.definition)


def _output_schema(call: Call) -> bytes | None:
    """What the tool promises of its results; what is listed admits the notice of a truncated one."""
    try:
        return bytes(msgspec.json.decode(call.item.definition, type=_Output).outputSchema) or None
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _close(payload: Payload) -> None:
    if isinstance(payload, Spooled):
        payload.close()
