"""The connection of an SDK session: held open in its own task, with rmcp declared and chunked results
assembled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from headgate.domain.errors import Effect
from headgate.protocol.protocol_version import META_CAPABILITIES, META_PREFIX
from headgate.tx import rmcp
from headgate.tx.chunk_download import ChunkDownloader
from headgate.tx.errors import TxNetworkError

log = logging.getLogger("headgate.tx")

# For a child process to be ended, first with patience.
_CLOSING_SECONDS = 15.0


class ClientHolder:
    """One client, open from `open` to `close` or until its transport fails."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._close_requested = asyncio.Event()
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether its transport has failed, or it was closed."""
        return self._task is None or self._task.done()

    @property
    def is_open(self) -> bool:
        """Whether it has been opened, and nothing has ended it since."""
        return self._opened.is_set() and not self.is_closed

    async def open(self) -> None:
        """Open it; raises what the SDK raises, or TxNetworkError when that was cancelled."""
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
            # Each call says for itself how it ended; this only keeps asyncio from saying it again.
            task.add_done_callback(_consume_exception)
            return
        if task.cancelled():
            raise TxNetworkError(
                "the connection could not be opened", "CONNECTION_ERROR", retryable=True, effect=Effect.NONE
            )
        await task

    async def close(self) -> None:
        """Close it, whatever state it is in."""
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
# For a server that does not answer what it does not know.
_NEGOTIATION_SECONDS = 5.0
# A name inside the SDK: without it a loss is noticed by the calls that fail.
_CLOSED = "_closed"


class SdkDispatcher(Protocol):
    """What carries the requests of a session: the SDK's dispatcher, as far as it is needed here."""

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request and wait for its result; raises whatever the SDK raises."""


class RmcpDispatcher:
    """A dispatcher in front of another one.

    `features` are those that both sides have; None while the peer is not known to speak rmcp. `names` are
    those of rmcp by which the peer is written to. `is_settled` says that it is known whether it speaks rmcp.
    """

    def __init__(
        self, wire: SdkDispatcher, config_features: frozenset[str], transfers: ChunkDownloader
    ) -> None:
        self.sdk_dispatcher = wire
        self.features: frozenset[str] | None = None
        self.names: tuple[str, ...] = rmcp.ONE_NAME
        self.is_negotiated = not config_features
        # Whether each request declares rmcp because the handshake, which did not, is over.
        self._declares_per_request = False
        self._offered = config_features
        self._transfers = transfers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sdk_dispatcher, name)

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request as the SDK wrote it, with our capability where it belongs."""
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
        return await self._transfers.assemble(result, self._fetching(params or {}, opts or {}))

    @property
    def is_closed(self) -> bool:
        """Whether the SDK knows that nothing can be sent any more."""
        return getattr(self.sdk_dispatcher, _CLOSED, False) is True

    def learn_announced(self, capabilities: object, *, handshake: bool) -> bool:
        """Learn what the peer of an open session has announced to it; whether it announced rmcp."""
        self._learn(capabilities)
        self.is_negotiated = self.features is not None
        self._declares_per_request = handshake and self.is_negotiated
        return self.is_negotiated

    async def negotiate(self, version: str) -> None:
        """Declare rmcp to the peer of a session whose handshake is over; raises whatever the SDK raises.

        A server that does not know the question refuses it, as it refuses a client of the stateless era.
        """
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
        """The same parameters, with our capability beside the client's others, wherever the era has them."""
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
        ours = dict.fromkeys(self.names, rmcp.capability(self._offered))
        return {**capabilities, "experimental": {**(capabilities.get("experimental") or {}), **ours}}

    def _fetching(self, params: Params, opts: Params) -> Callable[[str, Params], Awaitable[dict[str, Any]]]:
        """How to ask for chunks under the same conditions as the call that announced them."""
        given = params.get("_meta") or {}
        meta = {key: value for key, value in given.items() if key.startswith(META_PREFIX)}

        async def fetch(method: str, wanted: Params) -> dict[str, Any]:
            asked = {**wanted, "_meta": meta} if meta else wanted
            return await self.sdk_dispatcher.send_raw_request(method, asked, _options(opts, method))

        return fetch


# Headers of the stateless era that say which method this is, and copy its name and arguments.
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
