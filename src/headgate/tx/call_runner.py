"""Sends one call until it is answered or may not be sent again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx import failures
from headgate.tx.config import TxConfig
from headgate.tx.failures import CallFailure
from headgate.tx.peer_session import PeerSession, meta_of, text_of
from headgate.tx.rmcp import delivery_metadata_of
from headgate.tx.tool_call import RequestState, TxRequest, TxResult

log = logging.getLogger("headgate.tx")

# For listing the tools of a peer that has just failed.
_LISTING_SECONDS = 10.0


class CallRunner:
    """Sends and retries calls, each with its own timeout and policy, and a limited number at a time."""

    def __init__(
        self,
        peer: PeerSession,
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

    async def call_with_retry(self, request: TxRequest) -> TxResult:
        """The result after as many attempts as the policy and the tool allow."""
        while True:
            outcome = await self._attempt(request)
            if isinstance(outcome, TxResult):
                return outcome
            failure = outcome
            # An earlier attempt may have been executed, however certain the last one is.
            request.in_doubt = request.in_doubt or failure.effect is not Effect.NONE
            allowed = failures.policy_allows_retry(
                request.retry_policy, failure, request.attempts, retry_unknown=self._config.retry_unknown
            )
            if not (allowed and (failure.effect is Effect.NONE or await self.is_repeatable(request))):
                return _failed_result(request, failure)
            request.state = RequestState.PENDING
            await self._sleep(
                failures.retry_delay_seconds(request.retry_policy, failure, request.attempts, self._random())
            )

    async def is_repeatable(self, request: TxRequest) -> bool:
        """Whether the call may be sent again although it may have been executed."""
        if request.idempotency_key is not None and self._peer.honours_keys():
            return True
        return await self.is_safe_to_repeat(request)

    async def is_safe_to_repeat(self, request: TxRequest) -> bool:
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                return (await self._peer.kind_of(request.tool)).repeatable
        except Exception:
            log.info("the tools could not be listed, so %r is not called again", request.tool, exc_info=True)
            return False

    async def _attempt(self, request: TxRequest) -> TxResult | CallFailure:
        request.attempts += 1
        sent = False
        try:
            async with asyncio.timeout(request.timeout_ms / 1000) as clock, self._slots:
                if self._peer.is_lost:
                    await self._peer.reopen()
                # The current peer may not recognise an earlier attempt that may have been executed.
                if request.in_doubt and not (request.retries_doubt or await self.is_repeatable(request)):
                    return failures.doubt_failure(
                        request.tool, request.idempotency_key, request.repeats_doubt
                    )
                sent = request.sent = True
                request.state = RequestState.SENT
                reply = await self._peer.send_once(request, self._now())
        except TimeoutError as error:
            if not clock.expired():
                return failures.exception_failure(error)
            return failures.timeout_failure(request.tool, request.timeout_ms, sent=sent)
        except Exception as error:
            failure = failures.exception_failure(error)
            if failure.is_unknown:
                log.warning("%r failed with an unexpected error", request.tool, exc_info=True)
            return failure
        return _result_or_failure(request, reply)


def _result_or_failure(request: TxRequest, reply: Any) -> TxResult | CallFailure:
    """The answer, or the failure that a gateway reports instead."""
    meta = meta_of(reply)
    if meta:
        failure = failures.metadata_failure(meta, text_of(reply))
        if failure is not None:
            return failure
    request.state = RequestState.COMPLETED
    delivery = delivery_metadata_of(meta)
    return TxResult(
        result=reply,
        ack=True,
        answered=True,
        durable=request.durable,
        processed=delivery.get("processed") is not False,
        duplicate=delivery.get("duplicate") is True,
        attempts=request.attempts,
        request_id=request.request_id,
    )


def _failed_result(request: TxRequest, failure: CallFailure) -> TxResult:
    late = failure.code == "TIMEOUT"
    # The record of a peer under the key covers every attempt with it.
    settled = request.durable and failure.is_recorded
    unclear = request.in_doubt and failure.effect is Effect.NONE and not settled
    request.state = RequestState.TIMEOUT if late else RequestState.FAILED
    if failure.display_message != failure.message:
        log.info("%r failed: %s", request.tool, failure.message)
    return TxResult(
        ack=failure.ack or failure.is_answer,
        answered=failure.is_answer,
        durable=request.durable,
        duplicate=failure.duplicate,
        processed=None if unclear else _PROCESSED[failure.effect],
        attempts=request.attempts,
        final_status=request.state,
        error_code=failure.code,
        error_message=failure.display_message,
        error_detail=failure.message,
        retryable=failure.retryable,
        request_id=request.request_id,
    )


_PROCESSED = {Effect.NONE: False, Effect.UNKNOWN: None, Effect.DONE: True}
