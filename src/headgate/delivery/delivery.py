"""Delivers one call to its upstream, unless the upstream is known to be in no state to take it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headgate.delivery.breaker import Breaker
from headgate.domain.call import Answer, Call
from headgate.domain.errors import (
    HeadgateError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)


class Upstream(Protocol):
    """Whatever carries a call out."""

    async def await_ready(self, server: str) -> None:
        """Wait, for a bounded time, until the server has told its tools; raises UpstreamError."""

    async def send(self, call: Call) -> Answer:
        """Send once. Raises UpstreamError saying what may have happened."""


# Told the server, the outcome (`ok`, `error`, or the code of a failure) and the seconds of each call.
Count = Callable[[str, str, float], None]


class Delivery:
    """One attempt per call; a breaker per upstream."""

    def __init__(self, upstream: Upstream, now: Callable[[], float], count: Count) -> None:
        self._upstream = upstream
        self._now = now
        self._count = count
        self._breakers: dict[str, Breaker] = {}

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told its tools; raises UpstreamError, and counts it as the call's end."""
        started = self._now()
        try:
            await self._upstream.await_ready(server)
        except (HeadgateError, asyncio.CancelledError) as error:
            outcome = error.code if isinstance(error, HeadgateError) else "cancelled"
            self._count(server, outcome, self._now() - started)
            raise

    async def deliver(self, call: Call) -> Answer:
        """The upstream's answer; raises UpstreamError."""
        server = call.tool.server
        breaker = self._breakers.get(server) or self._breakers.setdefault(server, Breaker(self._now))
        started = self._now()
        outcome = "INTERNAL"
        try:
            answer = await self._attempt(call, breaker)
            outcome = "error" if answer.error else "ok"
            return answer
        except HeadgateError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._count(server, outcome, self._now() - started)

    async def _attempt(self, call: Call, breaker: Breaker) -> Answer:
        seconds = breaker.refusal()
        if seconds is not None:
            raise UpstreamUnavailable(call.tool.server, "it failed repeatedly", retry_after_seconds=seconds)
        try:
            answer = await self._upstream.send(call)
        except (UpstreamTimeout, UpstreamLost, UpstreamUnreachable):
            breaker.failed()
            raise
        except BaseException:
            # Cancelled, refused or answered wrongly: no verdict on the connection.
            breaker.abandoned()
            raise
        breaker.succeeded()
        return answer

    def recovered(self, server: str) -> None:
        """A new connection to `server` stands."""
        if server in self._breakers:
            self._breakers[server].recovered()
