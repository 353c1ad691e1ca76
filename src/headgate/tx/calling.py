"""Sends one call until it is answered, or until it may not be sent again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx import failures, retrying
from headgate.tx.config import TxConfig
from headgate.tx.failures import Failure
from headgate.tx.peer import Peer, meta_of, text_of
from headgate.tx.requests import RequestState, TxRequest
from headgate.tx.results import TxResult
from headgate.wire.rmcp import META

log = logging.getLogger("headgate.tx")

# To ask a peer for its tools after it has just failed.
_LISTING_SECONDS = 10.0


class Calling:
    """The one place that retries: so many calls at a time, each with its own time limit and policy."""

    def __init__(
        self,
        peer: Peer,
        config: TxConfig,
        *,
        sleep: Callable[[float], Awaitable[Any]],
        random: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._peer = peer
        self._config = config
        self._sleep = sleep
        self._random = random
        self._now = now
        self._slots = asyncio.Semaphore(config.max_concurrent_requests)

    async def call(self, request: TxRequest) -> TxResult:
        """How the call ended, after as many attempts as its policy and its tool allow."""
        while True:
            outcome = await self._attempt(request)
            if isinstance(outcome, TxResult):
                return outcome
            failure = outcome
            # What an earlier attempt may have done stays possible, however certain the last one is.
            request.in_doubt = request.in_doubt or failure.effect is not Effect.NONE
            if not await self._goes_on(request, failure):
                return _ended(request, failure)
            request.state = RequestState.PENDING
            await self._sleep(
                retrying.wait_seconds(request.retry_policy, failure, request.attempts, self._random())
            )

    async def is_repeatable(self, request: TxRequest) -> bool:
        """Whether the call may be sent again although it may have happened."""
        if request.idempotency_key is not None and self._peer.honours_keys():
            return True
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                return (await self._peer.kind_of(request.tool)).repeatable
        except Exception:
            log.info("the tools could not be listed, so %r is not called again", request.tool, exc_info=True)
            return False

    async def _attempt(self, request: TxRequest) -> TxResult | Failure:
        request.attempts += 1
        has_turn = False
        try:
            async with asyncio.timeout(request.timeout_ms / 1000) as clock, self._slots:
                if self._peer.is_lost and not await self._found_again(request):
                    return failures.of_changed_peer(request.tool)
                has_turn = request.sent = True
                request.state = RequestState.SENT
                reply = await self._peer.send(request, self._now())
        except TimeoutError as error:
            if not clock.expired():
                return failures.of_exception(error)
            return failures.of_timeout(request.tool, request.timeout_ms, sent=has_turn)
        except Exception as error:
            failure = failures.of_exception(error)
            if failure.is_unknown:
                log.warning("%r failed in a way that nobody foresaw", request.tool, exc_info=True)
            return failure
        return _read(request, reply)

    async def _found_again(self, request: TxRequest) -> bool:
        """Connect anew; False when whoever is there now would not tell a second attempt from the first."""
        await self._peer.reopen()
        return not request.in_doubt or await self.is_repeatable(request)

    async def _goes_on(self, request: TxRequest, failure: Failure) -> bool:
        wanted = retrying.is_wanted(
            request.retry_policy, failure, request.attempts, retry_unknown=self._config.retry_unknown
        )
        return wanted and (failure.effect is Effect.NONE or await self.is_repeatable(request))


def _read(request: TxRequest, reply: Any) -> TxResult | Failure:
    """An answer, or what a gateway says instead of one."""
    meta = meta_of(reply)
    if meta:
        failure = failures.of_meta(meta, text_of(reply))
        if failure is not None:
            return failure
    request.state = RequestState.COMPLETED
    receipt = meta.get(META)
    told = receipt if isinstance(receipt, dict) else {}
    return TxResult(
        result=reply,
        ack=True,
        processed=told.get("processed") is not False,
        duplicate=told.get("duplicate") is True,
        attempts=request.attempts,
        request_id=request.request_id,
    )


def _ended(request: TxRequest, failure: Failure) -> TxResult:
    late = failure.code == "TIMEOUT"
    unclear = request.in_doubt and failure.effect is Effect.NONE
    request.state = RequestState.TIMEOUT if late else RequestState.FAILED
    return TxResult(
        processed=None if unclear else _PROCESSED[failure.effect],
        attempts=request.attempts,
        final_status=request.state,
        error_code=failure.code,
        error_message=failure.message,
        retryable=failure.retryable,
        request_id=request.request_id,
    )


_PROCESSED = {Effect.NONE: False, Effect.UNKNOWN: None, Effect.DONE: True}
