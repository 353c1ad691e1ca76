"""The connection of an SDK session, which declares rmcp and assembles chunked results."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from headgate.domain.errors import Effect
from headgate.protocol.protocol_version import META_CAPABILITIES, META_PREFIX
from headgate.tx import rmcp
from headgate.tx.chunk_download import ChunkDownloader
from headgate.tx.errors import TxNetworkError

log = logging.getLogger("headgate.tx")

# Enough for the SDK to end a child process.
_CLOSING_SECONDS = 15.0


class ClientHolder:
    """Keeps one client open in a task of its own, from `open` to `close` or until its transport fails."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._close_requested = asyncio.Event()
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether its transport failed or it was closed."""
        return self._task is None or self._task.done()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set() and not self.is_closed

    async def open(self) -> None:
        """Open the client; raises what the SDK raises, or TxNetworkError when that was cancelled."""
        task = self._task = asyncio.create_task(self._run_client())
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if self._opened.is_set():
            # Calls report the failure themselves; this keeps asyncio from logging it.
            task.add_done_callback(_consume_exception)
            return
        if task.cancelled():
            raise TxNetworkError(
                "the connection could not be opened", "CONNECTION_ERROR", retryable=True, effect=Effect.NONE
            )
        await task

    async def close(self) -> None:
        self._close_requested.set()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)
            self._task.cancel()

    async def _run_client(self) -> None:
        async with self._client:
            self._opened.set()
            await self._close_requested.wait()


def _consume_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("the connection was lost", exc_info=error)


Params = Mapping[str, Any]
_HANDSHAKE_METHODS = ("initialize", "server/discover")
# For a server that does not answer unknown methods.
_NEGOTIATION_SECONDS = 5.0
# A private name of the SDK; without it only a failed call shows that the connection is lost.
_CLOSED = "_closed"


class SdkDispatcher(Protocol):
    """The part of the SDK's dispatcher that is used here."""

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request and wait for its result; raises what the SDK raises."""


class RmcpDispatcher:
    """Wraps the dispatcher of the SDK, and adds rmcp.

    `features` are those that both sides have; None while the peer is not known to support rmcp. `names` are
    those of the metadata for the peer. `is_negotiated` means that the support of the peer is known.
    """

    def __init__(
        self, sdk_dispatcher: SdkDispatcher, config_features: frozenset[str], transfers: ChunkDownloader
    ) -> None:
        self.sdk_dispatcher = sdk_dispatcher
        self.features: frozenset[str] | None = None
        self.names: tuple[str, ...] = rmcp.ONE_NAME
        self.is_negotiated = not config_features
        # Whether each request declares rmcp, because the handshake did not.
        self._declares_per_request = False
        self._offered = config_features
        self._transfers = transfers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sdk_dispatcher, name)

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request of the SDK with the rmcp capability; raises what the SDK raises."""
        if not self._offered:
            return await self.sdk_dispatcher.send_raw_request(method, params, opts)
        if method in _HANDSHAKE_METHODS:
            result = await self.sdk_dispatcher.send_raw_request(method, self._declared(params), opts)
            self._learn(result.get("capabilities"))
            self.is_negotiated = True
            return result
        if self.features is None:
            return await self.sdk_dispatcher.send_raw_request(method, params, opts)
        params = self._declared(params)
        result = await self.sdk_dispatcher.send_raw_request(method, params, opts)
        if method != "tools/call" or "chunking" not in self.features:
            return result
        # Chunks are fetched with the metadata and options of the call.
        given: Params = (params or {}).get("_meta") or {}
        meta = {key: value for key, value in given.items() if key.startswith(META_PREFIX)}

        async def fetch(method: str, chunk: Params) -> dict[str, Any]:
            request = {**chunk, "_meta": meta} if meta else chunk
            return await self.sdk_dispatcher.send_raw_request(method, request, _options(opts or {}, method))

        return await self._transfers.assemble(result, fetch)

    @property
    def is_closed(self) -> bool:
        return getattr(self.sdk_dispatcher, _CLOSED, False) is True

    def learn_announced(self, capabilities: object, *, handshake: bool) -> bool:
        """Read what the peer of an open session announced; True when that includes rmcp."""
        self._learn(capabilities)
        self.is_negotiated = self.features is not None
        self._declares_per_request = handshake and self.is_negotiated
        return self.is_negotiated

    async def negotiate(self, version: str) -> None:
        """Declare rmcp after the handshake; raises what the SDK raises, also when the server refuses it."""
        meta = {META_CAPABILITIES: self._with_rmcp({})}
        options = {"timeout": _NEGOTIATION_SECONDS, "headers": {"mcp-protocol-version": version}}
        try:
            result = await self.sdk_dispatcher.send_raw_request("server/discover", {"_meta": meta}, options)
            self._learn(result.get("capabilities"))
            self._declares_per_request = self.features is not None
        finally:
            self.is_negotiated = True

    def _learn(self, capabilities: object) -> None:
        self.features = rmcp.negotiated_features(capabilities, self._offered)
        self.names = rmcp.meta_names_of(capabilities)

    def _declared(self, params: Params | None) -> Params | None:
        """The parameters with the rmcp capability, where the era of the session has capabilities."""
        declared = dict(params or {})
        meta = declared.get("_meta")
        if isinstance(declared.get("capabilities"), Mapping):
            declared["capabilities"] = self._with_rmcp(declared["capabilities"])
        elif isinstance(meta, Mapping) and isinstance(meta.get(META_CAPABILITIES), Mapping):
            declared["_meta"] = {**meta, META_CAPABILITIES: self._with_rmcp(meta[META_CAPABILITIES])}
        elif self._declares_per_request:
            declared["_meta"] = {**(meta or {}), META_CAPABILITIES: self._with_rmcp({})}
        else:
            return params
        return declared

    def _with_rmcp(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        declared = dict.fromkeys(self.names, rmcp.capability(self._offered))
        return {**capabilities, "experimental": {**(capabilities.get("experimental") or {}), **declared}}


# Headers of the stateless era that mirror method, name and arguments.
_CALL_HEADERS = ("mcp-method", "mcp-name", "mcp-param-")


def _options(opts: Params, method: str) -> dict[str, Any]:
    headers = {
        name: method if name.lower() == "mcp-method" else value
        for name, value in (opts.get("headers") or {}).items()
        if name.lower() == "mcp-method" or not name.lower().startswith(_CALL_HEADERS)
    }
    options: dict[str, Any] = {"headers": headers} if headers else {}
    if "timeout" in opts:
        options["timeout"] = opts["timeout"]
    return options
