"""The wrapped session and its peer: opening, rmcp negotiation, tool classes and peer transactions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from headgate.delivery.transactions.tool_definitions import BEGIN_TOOL, COMMIT_TOOL
from headgate.domain.errors import Effect
from headgate.domain.upstream_policy import ToolClass
from headgate.tx import rmcp
from headgate.tx.chunk_download import ChunkDownloader
from headgate.tx.config import TxConfig
from headgate.tx.errors import TxError, TxNetworkError
from headgate.tx.failures import exception_failure
from headgate.tx.sdk_connection import ClientHolder, RmcpDispatcher
from headgate.tx.tool_call import RequestState, TxRequest, TxResult

log = logging.getLogger("headgate.tx")

# Private names of the SDK; without them the session is not opened here, and plain MCP is used.
_DISPATCHER: Final = "_dispatcher"
_BUILD: Final = "_build_session"
_ENTERED: Final = "_entered"
_TASKS: Final = "_task_group"
# An endless listing must not block a call.
_MOST_PAGES: Final = 100
# Without an answer it is unknown whether the server supports rmcp.
_UNREACHABLE: Final = ("CONNECTION_ERROR", "NETWORK_ERROR")


class PeerSession:
    """One wrapped session and its peer."""

    def __init__(self, session: Any, config: TxConfig) -> None:
        self.session = session
        self._config = config
        self._offered = frozenset(config.features)
        self._dispatcher: RmcpDispatcher | None = None
        self._holder: ClientHolder | None = None
        self._opening = asyncio.Lock()
        self._kinds: dict[str, ToolClass] = {}
        # The features of the last known peer.
        self._features: frozenset[str] | None = None

    @property
    def features(self) -> frozenset[str] | None:
        """The rmcp features of both sides, or of the last peer; None when it is not known to support rmcp."""
        if self._dispatcher is not None and self._dispatcher.is_negotiated:
            self._features = self._dispatcher.features
        return self._features

    @property
    def fallback(self) -> str | None:
        if self.features is not None:
            return None
        if not self._offered:
            return "TxConfig.features is empty"
        if self._dispatcher is None:
            return "the wrapped session is not open, or none of the official SDK 2.x"
        return "the server does not announce rmcp"

    def honours_keys(self) -> bool:
        """Whether the current peer executes one call per key."""
        return not self.is_lost and "idempotency" in (self.features or ())

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be lost or not open yet, so that nothing can be sent."""
        if self._holder is None:
            return False
        return not self._holder.is_open or (self._dispatcher is not None and self._dispatcher.is_closed)

    async def open(self, stack: AsyncExitStack) -> None:
        """Install the rmcp dispatcher, and open the session unless its owner has."""
        is_client = hasattr(self.session, _BUILD)
        # Only a session of the SDK that was not entered yet is opened here; others are by their owner.
        unentered = getattr(self.session, _ENTERED, None) is False
        if not (unentered or getattr(self.session, _TASKS, self.session) is None):
            opened = self._install_dispatcher(self.session.session if is_client else self.session, stack)
            await self._negotiate(opened)
        elif is_client:
            stack.push_async_callback(self._close_for_good)
            await self._open_held_client()
        else:
            self._install_dispatcher(self.session, stack)
            await stack.enter_async_context(self.session)
        if self.fallback is not None:
            log.info("plain MCP is spoken: %s", self.fallback)

    async def reopen(self) -> None:
        """Reconnect after a loss; raises TxError, and has sent nothing then."""
        async with self._opening:
            if not self.is_lost:
                # Another call has reconnected meanwhile.
                return
            try:
                before = self.features
                await self._close()
                if hasattr(self.session.server, "__aenter__"):
                    problem = "the connection was lost, and its transport cannot be opened twice"
                    raise TxNetworkError(
                        f"{problem}; open a new session", "CONNECTION_ERROR", effect=Effect.NONE
                    )
                self.session = replace(self.session)
                await self._open_held_client()
                if before is not None and self.fallback is not None:
                    log.warning("plain MCP is spoken since the connection was lost: %s", self.fallback)
            except TxError:
                raise
            except Exception as error:
                reason = exception_failure(error).display_message
                raise TxNetworkError(
                    f"the connection was lost and could not be opened again: {reason}",
                    "CONNECTION_ERROR",
                    retryable=True,
                    effect=Effect.NONE,
                ) from error

    async def _open_held_client(self) -> None:
        client = self.session
        build = getattr(client, _BUILD)

        # A client builds its session and does the handshake in one step; the dispatcher goes in between.
        async def build_declaring(exit_stack: AsyncExitStack) -> Any:
            return self._install_dispatcher(await build(exit_stack), exit_stack)

        setattr(client, _BUILD, build_declaring)
        self._holder = ClientHolder(client)
        await self._holder.open()
        try:
            await self._negotiate(client.session)
        except Exception:
            # A client that pins its era opens without a request, even without a server.
            await self._close()
            raise

    async def _close(self) -> None:
        if self._holder is not None:
            await self._holder.close()

    async def _close_for_good(self) -> None:
        await self._close()
        # A late call must not open it again.
        self._holder = None

    async def send_once(self, request: TxRequest, now: float) -> Any:
        """Call the tool once; raises what the session raises."""
        meta = request.meta
        features = self.features
        request.durable = request.idempotency_key is not None and self.honours_keys()
        if features is not None and self._dispatcher is not None:
            metadata = rmcp.request_meta(request, features, now)
            meta = {**(meta or {}), **dict.fromkeys(self._dispatcher.names, metadata)}
        options: dict[str, Any] = {}
        if meta is not None:
            options["meta"] = meta
        if request.progress_callback is not None:
            options["progress_callback"] = request.progress_callback
        return await self.session.call_tool(request.tool, request.arguments, **options)

    async def kind_of(self, tool: str) -> ToolClass:
        """The class according to the annotations; UNSAFE without any, or if they are not trusted."""
        if not self._config.trust_annotations:
            return ToolClass.UNSAFE
        if tool not in self._kinds:
            if self.is_lost:
                await self.reopen()
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await self._page(cursor)
                self._kinds.update(
                    {listed.name: _annotated_class(listed.annotations) for listed in page.tools}
                )
                cursor = getattr(page, "next_cursor", None)
                if not cursor:
                    break
        return self.known_kind_of(tool)

    def known_kind_of(self, tool: str) -> ToolClass:
        """The class as far as it is known without listing the tools."""
        return self._kinds.get(tool, ToolClass.UNSAFE)

    def _install_dispatcher(self, session: Any, stack: AsyncExitStack) -> Any:
        sdk_dispatcher = getattr(session, _DISPATCHER, None)
        if sdk_dispatcher is None:
            return session
        self._dispatcher = dispatcher = RmcpDispatcher(
            sdk_dispatcher, self._offered, ChunkDownloader(self._config.max_transfer_bytes)
        )
        setattr(session, _DISPATCHER, dispatcher)

        def uninstall() -> None:
            # Not if another dispatcher wraps this one by now.
            if getattr(session, _DISPATCHER) is dispatcher:
                setattr(session, _DISPATCHER, dispatcher.sdk_dispatcher)

        stack.callback(uninstall)
        return session

    async def _negotiate(self, session: Any) -> None:
        """Find out whether the peer of an open session supports rmcp.

        In the stateless era every request declares rmcp; in the handshake era requests do from now on. Raises
        what the session raises when the server of a client that was opened here cannot be reached.
        """
        dispatcher, version = self._dispatcher, getattr(session, "protocol_version", None)
        if dispatcher is None or dispatcher.is_negotiated or not isinstance(version, str):
            return
        handshake = getattr(session, "discover_result", None) is None
        capabilities = session.server_capabilities
        announced = capabilities.model_dump(by_alias=True) if capabilities is not None else None
        if dispatcher.learn_announced(announced, handshake=handshake):
            return
        try:
            await (dispatcher.negotiate(version) if handshake else session.send_discover(version))
        except Exception as error:
            if self._holder is not None and not handshake and exception_failure(error).code in _UNREACHABLE:
                raise
            dispatcher.is_negotiated = True
            log.debug("the server does not negotiate rmcp", exc_info=True)

    async def _page(self, cursor: str | None) -> Any:
        if cursor is None:
            return await self.session.list_tools()
        if hasattr(self.session, _BUILD):
            return await self.session.list_tools(cursor=cursor)
        # Part of the SDK, which only its own sessions need.
        from mcp_types import PaginatedRequestParams  # noqa: PLC0415

        return await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))


def _annotated_class(annotations: Any) -> ToolClass:
    if getattr(annotations, "read_only_hint", None) is True:
        return ToolClass.READ
    if getattr(annotations, "idempotent_hint", None) is True:
        return ToolClass.IDEMPOTENT
    return ToolClass.UNSAFE


def meta_of(reply: Any) -> Mapping[str, Any]:
    meta = getattr(reply, "meta", None)
    return meta if isinstance(meta, Mapping) else {}


def is_error(reply: Any) -> bool:
    return getattr(reply, "is_error", False) is True


def text_of(reply: Any) -> str:
    for block in getattr(reply, "content", None) or ():
        text = getattr(block, "text", None)
        if isinstance(text, str):
            return text
    return ""


# The least that a gateway accepts; the limit of the program may be shorter.
_MIN_TIMEOUT_MS = 1000

CallPeerTool = Callable[[str, dict[str, Any]], Awaitable[TxResult]]


async def begin_peer_transaction(call_tool: CallPeerTool, timeout_ms: float) -> str | None:
    """The id of a new transaction on the peer; None when it has no tool for that."""
    # `keep`, because this program runs the compensations, which the peer does not know.
    limit = max(_MIN_TIMEOUT_MS, int(timeout_ms))
    answer = await call_tool(BEGIN_TOOL, {"timeout_ms": limit, "on_failure": "keep"})
    content = getattr(answer.result, "structured_content", None)
    id = content.get("transaction_id") if isinstance(content, dict) and _is_success(answer) else None
    return id if isinstance(id, str) and id else None


async def close_peer_transaction(call_tool: CallPeerTool, transaction_id: str) -> None:
    """End the transaction on the peer, after its steps were kept or undone."""
    if not _is_success(await call_tool(COMMIT_TOOL, {"transaction_id": transaction_id})):
        log.info("the peer did not close transaction %s", transaction_id)


def _is_success(answer: TxResult) -> bool:
    return answer.final_status is RequestState.COMPLETED and not is_error(answer.result)
