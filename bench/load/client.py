"""A plain blocking MCP client over HTTP: introduces itself, lists tools and prepares the bytes of a call."""

import http.client
import json
from typing import Any, Final

from bench.load.delivery_options import NUMBER, PLAIN, Ticket
from bench.load.plan import Era
from testkit.servers.prepared_answers import LEGACY, MODERN

# A peer that needs longer than this for one small answer is not coming back.
_TIMEOUT_SECONDS: Final = 30.0
_INFO: Final = {"name": "headgate-bench", "version": "1.0"}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _INFO,
}


class Refused(Exception):
    """The server answered with something else than a result."""


class Client:
    """One client of one era; with `none` it says nothing before its first call."""

    def __init__(self, port: int, era: Era, path: str = "/mcp", delivery_request: Ticket = PLAIN) -> None:
        self._port, self._path = port, path
        self._era = era
        self._ticket = delivery_request
        self._session = ""
        self.received = 0
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)

    def introduce(self) -> None:
        """Do what the era asks for before the first call. Raises Refused or OSError."""
        if self._era != "legacy":
            return
        params = {"protocolVersion": LEGACY, "capabilities": self._ticket.capabilities, "clientInfo": _INFO}
        self.request("initialize", params)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "notifications/initialized", "")

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Raises Refused or OSError."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": self._with_meta(params)}
        status, body = self._post(message, method, str(params.get("name", "")))
        answer = _answer(body)
        if status != 200 or "result" not in answer:
            raise Refused(f"{method}: status {status}, {body[:300]!r}")
        result: dict[str, Any] = answer["result"]
        return result

    def listing(self) -> tuple[int, int, int]:
        """All pages of the listing: how many tools, pages and bytes of answer. Raises Refused or OSError."""
        tools = pages = received = 0
        cursor: dict[str, Any] = {}
        while True:
            page = self.request("tools/list", cursor)
            tools += len(page["tools"])
            pages += 1
            received += self.received
            if not page.get("nextCursor"):
                return tools, pages, received
            cursor = {"cursor": page["nextCursor"]}

    def public_name(self, tool: str) -> str:
        """The name under which the tool is offered, which a gateway may have prefixed."""
        cursor: dict[str, Any] = {}
        while True:
            page = self.request("tools/list", cursor)
            names = [str(entry["name"]) for entry in page["tools"]]
            for name in names:
                if name == tool or name.endswith(("_" + tool, ":" + tool)):
                    return name
            if not page.get("nextCursor"):
                raise Refused(f"no tool {tool!r} among {len(names)}")
            cursor = {"cursor": page["nextCursor"]}

    def call_bytes(self, name: str) -> list[bytes]:
        """The bytes of a call on this session, cut wherever the number of the call belongs."""
        params = self._with_meta({"name": name, "arguments": {"path": "reports/daily", "limit": 10}})
        if self._ticket.meta:
            params["_meta"] = params.get("_meta", {}) | self._ticket.meta
        text = json.dumps(params, separators=(",", ":"))
        body = f'{{"jsonrpc":"2.0","id":{NUMBER},"method":"tools/call","params":{text}}}'
        headers = self._headers("tools/call", name) | {
            "Host": f"127.0.0.1:{self._port}",
            "Content-Length": str(len(body)),
            **self._ticket.headers,
        }
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        request = f"POST {self._path} HTTP/1.1\r\n{head}\r\n{body}"
        return [part.encode() for part in request.split(NUMBER)]

    def leave(self) -> None:
        """End the session, if there is one, and the connection."""
        if self._session:
            try:
                self._connection.request("DELETE", self._path, headers=self._headers("", ""))
                self._connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                # The server may have gone first; there is nothing left to end.
                pass
        self._connection.close()

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._era != "modern":
            return params
        said = {"io.modelcontextprotocol/clientCapabilities": self._ticket.capabilities}
        return params | {"_meta": _META | said}

    def _headers(self, method: str, name: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._era == "modern":
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if name:
                headers["Mcp-Name"] = name
        elif self._era == "legacy" and method != "initialize":
            headers["MCP-Protocol-Version"] = LEGACY
            if self._session:
                headers["Mcp-Session-Id"] = self._session
        return headers

    def _post(self, message: dict[str, Any], method: str, name: str) -> tuple[int, bytes]:
        text = json.dumps(message, separators=(",", ":"))
        self._connection.request("POST", self._path, text, self._headers(method, name))
        response = self._connection.getresponse()
        self._session = response.getheader("Mcp-Session-Id") or self._session
        body = response.read()
        self.received = len(body)
        return response.status, body


def _answer(body: bytes) -> dict[str, Any]:
    """The JSON-RPC answer in a JSON body or in the events of a stream."""
    if not body.lstrip().startswith(b"{"):
        events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and b'"id"' in line]
        body = events[-1] if events else b"{}"
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
