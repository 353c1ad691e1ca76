"""The path: what happens to a call and to a listing, in order."""

from typing import Protocol

from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.tool import Tool
from headgate.wire.eras import Era


class Access(Protocol):
    """Decides who may do what."""

    def admit(self, caller: Caller) -> None:
        """Count the request; raises when the caller asks too often."""

    def permit(self, caller: Caller, tool: Tool) -> None:
        """Raises when the caller may not use the tool."""


class Catalog(Protocol):
    """Knows every tool and its names."""

    def silent_server(self, name: str) -> str | None:
        """The server that such a tool belongs to, if it has not told its tools yet."""

    def resolve(self, name: str, caller: Caller) -> Tool:
        """The tool of that name; raises ToolNotFound with the nearest ones."""

    def page(self, cursor: str | None, caller: Caller, era: Era) -> bytes:
        """One page of the listing: the members of a tools/list result, without its braces."""


class Delivery(Protocol):
    """Carries a call to its upstream."""

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told its tools; raises HeadgateError with the cause when it does not."""

    async def deliver(self, call: Call) -> Answer:
        """The upstream's answer; raises HeadgateError saying what may have happened."""


class Responses(Protocol):
    """Keeps large results out of the conversation."""

    def shape(self, call: Call, answer: Answer) -> Answer:
        """What the client is shown of the answer."""


class Gateway:
    """One gate between clients and every tool."""

    def __init__(self, access: Access, catalog: Catalog, delivery: Delivery, responses: Responses) -> None:
        self._access = access
        self._catalog = catalog
        self._delivery = delivery
        self._responses = responses

    async def call(self, request: Request) -> Answer:
        """Carry one tool call to its upstream and its answer back; raises HeadgateError."""
        # Before resolving, so that guessing tool names is not free.
        self._access.admit(request.caller)
        # A server that is still starting may have the tool, so it is too early to say that nobody has.
        server = self._catalog.silent_server(request.tool)
        if server is not None:
            await self._delivery.await_ready(server)
        tool = self._catalog.resolve(request.tool, request.caller)
        self._access.permit(request.caller, tool)
        call = Call(request, tool)
        answer = await self._delivery.deliver(call)
        # After delivery, so that what is recorded is what the upstream said, not what we showed.
        return self._responses.shape(call, answer)

    def list_tools(self, caller: Caller, cursor: str | None, era: Era) -> bytes:
        """One page of tools/list; raises InvalidCursor."""
        return self._catalog.page(cursor, caller, era)
