"""SDK clients that can be asked: each has a name, and answers every question with it."""

import asyncio
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext

from tests.real.mcp_clients import ANSWER_SECONDS, ClientTasks

MODES = {"legacy": "legacy", "modern": "auto"}


class Person:
    """A client of one era, and what it was asked."""

    def __init__(self, name: str, server: Any, era: str, *, action: str = "accept", **more: Any) -> None:
        self.name = name
        self.era = era
        # Its only root.
        self.home = f"/home/{name}"
        # What it was asked, in order: the words of each question; roots have none.
        self.asked: list[str] = []
        # Set while it may answer.
        self.willing = asyncio.Event()
        self.willing.set()
        self._action = action
        self.client = Client(
            server,
            mode=MODES[era],
            read_timeout_seconds=ANSWER_SECONDS,
            elicitation_callback=self._fill_in,
            sampling_callback=self._think,
            list_roots_callback=self._show_roots,
            **more,
        )

    async def call(self, tool: str, **arguments: Any) -> str:
        """The texts of a tool's result."""
        result = await self.client.call_tool(tool, arguments)
        return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))

    async def _fill_in(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        await self._note(params.message)
        if self._action == "error":
            return types.ErrorData(code=4712, message=f"{self.name} does not answer")
        if self._action == "accept" and isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="accept", content={"name": self.name})
        return types.ElicitResult(action="decline" if self._action == "decline" else "accept")

    async def _think(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        (message,) = params.messages
        assert isinstance(message.content, types.TextContent)
        await self._note(message.content.text)
        words = types.TextContent(type="text", text=f"{self.name} on {message.content.text}")
        return types.CreateMessageResult(role="assistant", content=words, model=f"the model of {self.name}")

    async def _show_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        uri: Any = f"file://{self.home}"
        return types.ListRootsResult(roots=[types.Root(uri=uri, name=self.name)])

    async def _note(self, question: str) -> None:
        self.asked.append(question)
        async with asyncio.timeout(ANSWER_SECONDS):
            await self.willing.wait()


class Company:
    """People that stay connected while a module's tests run."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._lodge = ClientTasks()
        self._people: dict[tuple[str, str], Person] = {}

    async def person(self, name: str, era: str, **more: Any) -> Person:
        """The one of that name and era, who has been asked nothing yet."""
        if (name, era) not in self._people:
            person = self._people[(name, era)] = Person(name, self._server, era, **more)
            await self._lodge.admit(person.client)
        found = self._people[(name, era)]
        found.asked.clear()
        return found

    async def leave(self) -> None:
        await self._lodge.leave()
