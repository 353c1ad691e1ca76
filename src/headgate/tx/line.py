"""Between a session of the official SDK and its connection: declares rmcp, and puts chunked results together.

The SDK has no place for experimental capabilities of a client, and it checks a result before a wrapper can
see that it is only the announcement of one; so the library stands where the raw messages pass.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from headgate.protocol.protocol_version import META_CAPABILITIES, META_PREFIX
from headgate.tx import rmcp
from headgate.tx.chunks import Transfers

Params = Mapping[str, Any]
_GREETINGS = ("initialize", "server/discover")
# For a server that does not answer what it does not know.
_NEGOTIATION_SECONDS = 5.0
# A name inside the SDK: without it a loss is noticed by the calls that fail.
_CLOSED = "_closed"


class Wire(Protocol):
    """What carries the requests of a session: the SDK's dispatcher, as far as it is needed here."""

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request and wait for its result; raises whatever the SDK raises."""


class Line:
    """A dispatcher in front of another one.

    `features` are those that both sides have; None while the peer is not known to speak rmcp. `names` are
    those of rmcp by which the peer is written to. `is_settled` says that it is known whether it speaks rmcp.
    """

    def __init__(self, wire: Wire, config_features: frozenset[str], transfers: Transfers) -> None:
        self.wire = wire
        self.features: frozenset[str] | None = None
        self.names: tuple[str, ...] = rmcp.ONE_NAME
        self.is_settled = not config_features
        # Whether each request declares rmcp because the handshake, which did not, is over.
        self._is_late = False
        self._offered = config_features
        self._transfers = transfers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)

    async def send_raw_request(self, method: str, params: Params | None, opts: Any = None) -> dict[str, Any]:
        """Send a request as the SDK wrote it, with our capability where it belongs."""
        if not self._offered:
            return await self.wire.send_raw_request(method, params, opts)
        if method in _GREETINGS:
            result = await self.wire.send_raw_request(method, self._declared(params), opts)
            self._learn(result.get("capabilities"))
            self.is_settled = True
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

    def recognise(self, capabilities: object, *, handshake: bool) -> bool:
        """Learn what the peer of an open session has announced to it; whether it announced rmcp."""
        self._learn(capabilities)
        self.is_settled = self.features is not None
        self._is_late = handshake and self.is_settled
        return self.is_settled

    async def negotiate(self, version: str) -> None:
        """Declare rmcp to the peer of a session whose handshake is over; raises whatever the SDK raises.

        A server that does not know the question refuses it, as it refuses a client of the stateless era.
        """
        meta = {META_CAPABILITIES: self._with_rmcp({})}
        options = {"timeout": _NEGOTIATION_SECONDS, "headers": {"mcp-protocol-version": version}}
        try:
            result = await self.wire.send_raw_request("server/discover", {"_meta": meta}, options)
            self._learn(result.get("capabilities"))
            self._is_late = self.features is not None
        finally:
            self.is_settled = True

    def _learn(self, capabilities: object) -> None:
        self.features = rmcp.agreed(capabilities, self._offered)
        self.names = rmcp.names_of(capabilities)

    def _declared(self, params: Params | None) -> Params | None:
        """The same parameters, with our capability beside the client's others, wherever the era has them."""
        declared = dict(params or {})
        meta = declared.get("_meta")
        if isinstance(declared.get("capabilities"), Mapping):
            declared["capabilities"] = self._with_rmcp(declared["capabilities"])
        elif isinstance(meta, Mapping) and isinstance(meta.get(META_CAPABILITIES), Mapping):
            declared["_meta"] = {**meta, META_CAPABILITIES: self._with_rmcp(meta[META_CAPABILITIES])}
        elif self._is_late:
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
