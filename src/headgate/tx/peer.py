"""The session that is wrapped: opening it, what its peer speaks, and what its tools say of themselves."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from headgate.domain.care import ToolClass
from headgate.domain.errors import Effect
from headgate.tx import rmcp
from headgate.tx.chunks import Transfers
from headgate.tx.config import TxConfig
from headgate.tx.errors import TxError, TxNetworkError
from headgate.tx.failures import of_exception
from headgate.tx.holding import Held
from headgate.tx.line import Line
from headgate.tx.requests import TxRequest
from headgate.wire.rmcp import META

# Names inside the SDK: without them a session is not opened by us, and plain MCP is spoken.
_DISPATCHER: Final = "_dispatcher"
_BUILD: Final = "_build_session"
_ENTERED: Final = "_entered"
_TASKS: Final = "_task_group"
# A listing that never ends must not keep a call waiting for ever.
_MOST_PAGES: Final = 100


class Peer:
    """One wrapped session, and whoever is at its other end."""

    def __init__(self, session: Any, config: TxConfig) -> None:
        self.session = session
        self._config = config
        self._offered = frozenset(config.features)
        self._line: Line | None = None
        self._held: Held | None = None
        self._opening = asyncio.Lock()
        self._kinds: dict[str, ToolClass] = {}

    @property
    def features(self) -> frozenset[str] | None:
        """The features of rmcp that both have; None when the peer is not known to speak it."""
        return self._line.features if self._line is not None else None

    def honours_keys(self) -> bool:
        """Whether the peer itself carries out one call for each key."""
        return "idempotency" in (self.features or ())

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be gone, so that nothing can be sent."""
        if self._held is None:
            return False
        return self._held.is_over or (self._line is not None and self._line.is_closed)

    async def open(self, stack: AsyncExitStack) -> None:
        """Stand in the line of the session, and open the session unless its owner has."""
        is_client = hasattr(self.session, _BUILD)
        if not _is_closed(self.session):
            self._stand_in(self.session.session if is_client else self.session, stack)
        elif is_client:
            stack.push_async_callback(self._leave)
            await self._hold()
        else:
            self._stand_in(self.session, stack)
            await stack.enter_async_context(self.session)

    async def reopen(self) -> None:
        """Connect anew after a loss; raises TxError, after which nothing was sent."""
        async with self._opening:
            if not self.is_lost:
                # Somebody else was faster.
                return
            try:
                await self._close()
                self.session = _again(self.session)
                await self._hold()
            except TxError:
                raise
            except Exception as error:
                reason = of_exception(error).message
                raise TxNetworkError(
                    f"the connection was lost and could not be opened again: {reason}",
                    "CONNECTION_ERROR",
                    retryable=True,
                    effect=Effect.NONE,
                ) from error

    async def _hold(self) -> None:
        client = self.session
        build = getattr(client, _BUILD)

        # A client makes its session, and shakes hands, in one go: we must be there in between.
        async def build_declaring(exit_stack: AsyncExitStack) -> Any:
            return self._stand_in(await build(exit_stack), exit_stack)

        setattr(client, _BUILD, build_declaring)
        self._held = Held(client)
        await self._held.open()

    async def _close(self) -> None:
        if self._held is not None:
            await self._held.close()

    async def _leave(self) -> None:
        await self._close()
        # For good: a call that comes too late must not open it again.
        self._held = None

    async def send(self, request: TxRequest, now: float) -> Any:
        """Call the tool once; raises whatever the session raises."""
        meta = request.meta
        features = self.features
        if features is not None:
            meta = {**(meta or {}), META: rmcp.request_meta(request, features, now)}
        options: dict[str, Any] = {}
        if meta is not None:
            options["meta"] = meta
        if request.progress_callback is not None:
            options["progress_callback"] = request.progress_callback
        return await self.session.call_tool(request.tool, request.arguments, **options)

    async def kind_of(self, tool: str) -> ToolClass:
        """What the tool says of a second call; UNSAFE when it says nothing or is not believed."""
        if not self._config.trust_annotations:
            return ToolClass.UNSAFE
        if tool not in self._kinds:
            if self.is_lost:
                await self.reopen()
            self._kinds.update(await self._listed())
        return self.known_kind_of(tool)

    def known_kind_of(self, tool: str) -> ToolClass:
        """The same, as far as it has been asked before."""
        return self._kinds.get(tool, ToolClass.UNSAFE)

    def _stand_in(self, session: Any, stack: AsyncExitStack) -> Any:
        wire = getattr(session, _DISPATCHER, None)
        if wire is None:
            return session
        self._line = Line(wire, self._offered, Transfers(self._config.max_transfer_bytes))
        setattr(session, _DISPATCHER, self._line)
        stack.callback(_stand_down, session, self._line)
        discovered = getattr(session, "discover_result", None)
        if discovered is not None:
            # Without a handshake every request declares anew, so it is not too late.
            self._line.recognise(discovered.capabilities.model_dump(by_alias=True))
        return session

    async def _listed(self) -> dict[str, ToolClass]:
        listed: dict[str, ToolClass] = {}
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._page(cursor)
            listed.update({tool.name: _kind(tool.annotations) for tool in page.tools})
            cursor = getattr(page, "next_cursor", None)
            if not cursor:
                break
        return listed

    async def _page(self, cursor: str | None) -> Any:
        if cursor is None:
            return await self.session.list_tools()
        if hasattr(self.session, _BUILD):
            return await self.session.list_tools(cursor=cursor)
        types = import_module("mcp_types")
        return await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))


def _again(client: Any) -> Any:
    """A client like this one, which can be opened once more."""
    if hasattr(client.server, "__aenter__"):
        raise TxNetworkError(
            "the connection was lost, and its transport cannot be opened twice; open a new session",
            "CONNECTION_ERROR",
            effect=Effect.NONE,
        )
    return replace(client)


def _stand_down(session: Any, line: Line) -> None:
    # Unless somebody stands behind us by now, who needs us where we are.
    if getattr(session, _DISPATCHER) is line:
        setattr(session, _DISPATCHER, line.wire)


def _is_closed(session: Any) -> bool:
    """Whether it is one of the SDK's that nobody has entered yet; any other is its owner's to open."""
    return getattr(session, _ENTERED, None) is False or getattr(session, _TASKS, session) is None


def _kind(annotations: Any) -> ToolClass:
    if getattr(annotations, "read_only_hint", None) is True:
        return ToolClass.READ
    if getattr(annotations, "idempotent_hint", None) is True:
        return ToolClass.IDEMPOTENT
    return ToolClass.UNSAFE


def meta_of(reply: Any) -> Mapping[str, Any]:
    """What came beside an answer."""
    meta = getattr(reply, "meta", None)
    return meta if isinstance(meta, Mapping) else {}


def is_error(reply: Any) -> bool:
    """Whether the tool answered that it failed."""
    return getattr(reply, "is_error", False) is True


def text_of(reply: Any) -> str:
    """The first words of an answer."""
    for block in getattr(reply, "content", None) or ():
        text = getattr(block, "text", None)
        if isinstance(text, str):
            return text
    return ""
