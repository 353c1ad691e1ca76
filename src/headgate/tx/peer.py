"""The session that is wrapped: opening it, what its peer speaks, and what its tools say of themselves."""

import asyncio
import logging
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

log = logging.getLogger("headgate.tx")

# Names inside the SDK: without them a session is not opened by us, and plain MCP is spoken.
_DISPATCHER: Final = "_dispatcher"
_BUILD: Final = "_build_session"
_ENTERED: Final = "_entered"
_TASKS: Final = "_task_group"
# A listing that never ends must not keep a call waiting for ever.
_MOST_PAGES: Final = 100
# An answer that did not come says nothing about what the server speaks.
_UNREACHABLE: Final = ("CONNECTION_ERROR", "NETWORK_ERROR")


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
        # What the peer was last known to have in common with us.
        self._features: frozenset[str] | None = None

    @property
    def features(self) -> frozenset[str] | None:
        """The features of rmcp that both have; None when the peer is not known to speak it.

        While the connection is lost, those of the peer that was there.
        """
        if self._line is not None and self._line.is_settled:
            self._features = self._line.features
        return self._features

    @property
    def fallback(self) -> str | None:
        """Why plain MCP is spoken; None when rmcp is."""
        if self.features is not None:
            return None
        if not self._offered:
            return "TxConfig.features is empty"
        if self._line is None:
            return "the wrapped session is not open, or none of the official SDK 2.x"
        return "the server does not announce rmcp"

    def honours_keys(self) -> bool:
        """Whether the peer that is there now carries out one call for each key."""
        return not self.is_lost and "idempotency" in (self.features or ())

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be gone or not there yet, so that nothing can be sent."""
        if self._held is None:
            return False
        return not self._held.is_open or (self._line is not None and self._line.is_closed)

    async def open(self, stack: AsyncExitStack) -> None:
        """Stand in the line of the session, and open the session unless its owner has."""
        is_client = hasattr(self.session, _BUILD)
        if not _is_closed(self.session):
            opened = self._stand_in(self.session.session if is_client else self.session, stack)
            await self._negotiate(opened)
        elif is_client:
            stack.push_async_callback(self._leave)
            await self._hold()
        else:
            self._stand_in(self.session, stack)
            await stack.enter_async_context(self.session)
        if self.fallback is not None:
            log.info("plain MCP is spoken: %s", self.fallback)

    async def reopen(self) -> None:
        """Connect anew after a loss; raises TxError, after which nothing was sent."""
        async with self._opening:
            if not self.is_lost:
                # Somebody else was faster.
                return
            try:
                before = self.features
                await self._close()
                self.session = _again(self.session)
                await self._hold()
                if before is not None and self.fallback is not None:
                    log.warning("plain MCP is spoken since the connection was lost: %s", self.fallback)
            except TxError:
                raise
            except Exception as error:
                reason = of_exception(error).shown
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
        try:
            await self._negotiate(client.session)
        except Exception:
            # A client that pins its era opens without a request, also where no server is there.
            await self._close()
            raise

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
        request.durable = request.idempotency_key is not None and self.honours_keys()
        if features is not None and self._line is not None:
            asked = rmcp.request_meta(request, features, now)
            meta = {**(meta or {}), **dict.fromkeys(self._line.names, asked)}
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
        return session

    async def _negotiate(self, session: Any) -> None:
        """Find out whether the peer of an open session speaks rmcp, which nobody has declared to it yet.

        In the stateless era every request declares anew. In the handshake era ours do from now on. Raises
        what the session raises where the server of a client that we hold cannot be reached.
        """
        line, version = self._line, getattr(session, "protocol_version", None)
        if line is None or line.is_settled or not isinstance(version, str):
            return
        handshake = getattr(session, "discover_result", None) is None
        capabilities = session.server_capabilities
        announced = capabilities.model_dump(by_alias=True) if capabilities is not None else None
        if line.recognise(announced, handshake=handshake):
            return
        try:
            await (line.negotiate(version) if handshake else session.send_discover(version))
        except Exception as error:
            if self._held is not None and not handshake and of_exception(error).code in _UNREACHABLE:
                raise
            line.is_settled = True
            log.debug("the server does not negotiate rmcp", exc_info=True)

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
