"""Between a session of the official SDK and its connection: declares rmcp, and puts chunked results together.

The SDK has no place for experimental capabilities of a client, and it checks a result before a wrapper can
see that it is only the announcement of one; so the library stands where the raw messages pass.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from headgate.tx import rmcp
from headgate.tx.chunks import Transfers
from headgate.wire.eras import META_CAPABILITIES, META_PREFIX
from headgate.wire.rmcp import META

Params = Mapping[str, Any]
# A name inside the SDK: without it a loss is noticed by the calls that fail.
_CLOSED = "_closed"


class Wire(Protocol):
    """What carries the requests of a session: the SDK's dispatcher, as far as it is needed here."""

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request and wait for its result; raises whatever the SDK raises."""


class Line:
    """A dispatcher in front of another one.

    `features` are those that both sides have; None while the peer is not known to speak rmcp.
    """

    def __init__(self, wire: Wire, config_features: frozenset[str], transfers: Transfers) -> None:
        self.wire = wire
        self.features: frozenset[str] | None = None
        self._offered = config_features
        self._transfers = transfers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request as the SDK wrote it, with our capability where it belongs."""
        if not self._offered:
            return await self.wire.send_raw_request(method, params, opts)
        if method in ("initialize", "server/discover"):
            result = await self.wire.send_raw_request(method, self._declared(params), opts)
            self.features = rmcp.agreed(result.get("capabilities"), self._offered)
            return result
        if self.features is None:
            return await self.wire.send_raw_request(method, params, opts)
        params = self._declared(params)
        result = await self.wire.send_raw_request(method, params, opts)
        if method != "tools/call" or "chunking" not in self.features:
            return result
        return await self._transfers.complete(result, self._fetching(params or {}, opts or {}))

    @property
    def is_closed(self) -> bool:
        """Whether the SDK knows that nothing can be sent any more."""
        return getattr(self.wire, _CLOSED, False) is True

    def recognise(self, capabilities: object) -> None:
        """Learn what the peer of a session without a handshake has said before we came."""
        if self._offered:
            self.features = rmcp.agreed(capabilities, self._offered)

    def _declared(self, params: Params | None) -> Params | None:
        """The same parameters, with our capability beside the client's others, wherever the era has them."""
        declared = dict(params or {})
        meta = declared.get("_meta")
        if isinstance(declared.get("capabilities"), Mapping):
            declared["capabilities"] = self._with_rmcp(declared["capabilities"])
        elif isinstance(meta, Mapping) and isinstance(meta.get(META_CAPABILITIES), Mapping):
            declared["_meta"] = {**meta, META_CAPABILITIES: self._with_rmcp(meta[META_CAPABILITIES])}
        else:
            return params
        return declared

    def _with_rmcp(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        experimental = capabilities.get("experimental") or {}
        return {**capabilities, "experimental": {**experimental, META: rmcp.capability(self._offered)}}

    def _fetching(self, params: Params, opts: Params) -> Callable[[str, Params], Awaitable[dict[str, Any]]]:
        """How to ask for chunks under the same conditions as the call that announced them."""
        given = params.get("_meta") or {}
        meta = {key: value for key, value in given.items() if key.startswith(META_PREFIX)}

        async def fetch(method: str, wanted: Params) -> dict[str, Any]:
            asked = {**wanted, "_meta": meta} if meta else wanted
            return await self.wire.send_raw_request(method, asked, _options(opts, method))

        return fetch


# Headers of the stateless era that say which method this is, and copy its name and arguments.
_OF_THE_CALL = ("mcp-method", "mcp-name", "mcp-param-")


def _options(opts: Params, method: str) -> dict[str, Any]:
    headers = {
        name: method if name.lower() == "mcp-method" else value
        for name, value in (opts.get("headers") or {}).items()
        if name.lower() == "mcp-method" or not name.lower().startswith(_OF_THE_CALL)
    }
    options: dict[str, Any] = {"headers": headers} if headers else {}
    if "timeout" in opts:
        options["timeout"] = opts["timeout"]
    return options
