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
from headgate.domain.item import Item


class Upstream(Protocol):
    """Whatever carries a call out."""

    async def await_ready(self, server: str) -> None:
        """Wait, for a bounded time, until the server has told its tools; raises UpstreamError."""

    async def send(self, call: Call) -> Answer:
        """Send once. Raises UpstreamError saying what may have happened."""

    def holds_questions(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""

    async def subscribe(self, server: str, uri: str) -> Answer:
        """Hear of every change of a resource; raises UpstreamError."""

    async def unsubscribe(self, server: str, uri: str) -> Answer:
        """Do not hear of it any more; raises UpstreamError."""


# Told the server, the outcome (`ok`, `error`, or the code of a failure) and the seconds of each call.
Count = Callable[[str, str, float], None]


class Delivery:
    """One attempt per call; a breaker per upstream."""

    def __init__(self, upstream: Upstream, now: Callable[[], float], count: Count) -> None:
        self._upstream = upstream
        self._now = now
        self._count = count
        self._breakers: dict[str, Breaker] = {}
        # Where each subscription was taken, by the URI that clients know; one entry for each client.
        self._subscribed: dict[str, list[Item]] = {}

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
        server = call.item.server
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
            raise UpstreamUnavailable(call.item.server, "it failed repeatedly", retry_after_seconds=seconds)
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

    def holds_questions(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""
        return self._upstream.holds_questions(server)

    async def subscribe(self, item: Item) -> Answer:
        """Hear of every change of a resource; raises UpstreamError."""
        answer = await self._upstream.subscribe(item.server, item.name)
        if not answer.error:
            self._subscribed.setdefault(item.public_name, []).append(item)
        return answer

    async def unsubscribe(self, public_uri: str) -> Answer:
        """One client less hears of it; raises UpstreamError.

        At the server that took the subscription: by now the URI may be another server's, or nobody's.
        """
        items = self._subscribed.get(public_uri)
        if not items:
            return Answer(b"{}")
        item = items.pop(0)
        if not items:
            del self._subscribed[public_uri]
        return await self._upstream.unsubscribe(item.server, item.name)

    def recovered(self, server: str) -> None:
        """A new connection to `server` stands."""
        if server in self._breakers:
            self._breakers[server].recovered()
