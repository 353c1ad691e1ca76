"""Clients of both eras that send the name of their identity with every request."""

from collections.abc import Mapping
from typing import Any, Protocol

from testkit.clients.plain_http import (
    LEGACY,
    last_message,
    modern_headers,
    modern_request,
    post,
    request,
    send,
)
from testkit.gateway_process import GatewayProcess, HttpAnswer
from tests.access.granted import PRINCIPAL_HEADER

INFO = {"name": "x", "version": "1"}


def as_identity(who: str | None) -> dict[str, str | None]:
    """The header that names an identity; none of the local user."""
    return {PRINCIPAL_HEADER: who}


class McpClient(Protocol):
    """A client of either era."""

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request."""


class HandshakeClient:
    """A client with a session."""

    def __init__(
        self, gateway: GatewayProcess, who: str | None = None, path: str = "/mcp", **capabilities: Any
    ) -> None:
        self.gateway, self.who, self.path = gateway, who, path
        hello = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": INFO}
        greeting = post(gateway, request("initialize", hello, id=0), as_identity(who), path)
        assert greeting.status == 200, greeting
        self.greeting: dict[str, Any] = greeting.json()["result"]
        self.id = greeting.headers["mcp-session-id"]
        self.headers: dict[str, str | None] = {
            "Mcp-Session-Id": self.id,
            "MCP-Protocol-Version": LEGACY,
            **as_identity(who),
        }

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = post(self.gateway, request(method, params), self.headers, self.path)
        assert answer.status == 200, answer
        return last_message(answer)

    def used_by(self, who: str | None, method: str = "POST") -> HttpAnswer:
        """What a client with another identity gets for the id of this session."""
        headers = {**self.headers, **as_identity(who), "Accept": "*/*", "Content-Type": "application/json"}
        return send(self.gateway, method, "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')


class StatelessClient:
    """A client whose requests stand alone."""

    def __init__(
        self, gateway: GatewayProcess, who: str | None = None, path: str = "/mcp", **capabilities: Any
    ) -> None:
        self.gateway, self.who, self.path = gateway, who, path
        self._meta = {"io.modelcontextprotocol/clientCapabilities": capabilities} if capabilities else {}
        self.greeting: dict[str, Any] = self.ask("server/discover")["result"]

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        given: Mapping[str, Any] = params or {}
        name = given.get("name") or given.get("uri")
        headers = {**modern_headers(method, name), **as_identity(self.who)}
        message = modern_request(method, {**given, "_meta": {**self._meta, **given.get("_meta", {})}})
        return last_message(post(self.gateway, message, headers, self.path))


ERAS = {"handshake": HandshakeClient, "stateless": StatelessClient}
