"""Clients of both eras without an SDK, for what no SDK does: leave in the middle, come back, alter state."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from testkit.clients import plain_http
from testkit.clients.plain_http import JSON_HEADERS, LEGACY, MODERN

ANSWER_SECONDS = 30
CLIENT_INFO = {"name": "raw", "version": "1"}
# What a request of the modern era says about its sender.
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
}
Message = dict[str, Any]
# Everything that a client can declare to answer.
ANSWERS_ALL: Message = {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}}


class Stream:
    """One response as it comes: events, or a single message."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._events = plain_http.Stream(response, ANSWER_SECONDS)
        self.status = response.status
        self.streamed = response.headers.get_content_subtype() == "event-stream"
        self.headers = response.headers

    @property
    def last_id(self) -> str:
        """The id to resume the stream after."""
        return self._events.id

    def next_text(self) -> str:
        """The source text of the next message, empty at the end; raises TimeoutError when none comes."""
        if not self.streamed:
            return self._response.read().decode()
        try:
            return self._events.event()[1]
        except EOFError:
            return ""

    def texts(self) -> list[str]:
        """The source texts of all messages to the end, which closes the connection."""
        found = list(iter(self.next_text, ""))
        self.close()
        return found

    def next(self) -> Message | None:
        """The next message, or None at the end; raises TimeoutError when none comes."""
        text = self.next_text()
        return json.loads(text) if text else None

    def until(self, method: str) -> Message:
        """The next message of that method; what comes before it is not looked at."""
        while (message := self.next()) is not None:
            if message.get("method") == method:
                return message
        raise AssertionError(f"the stream ended without {method}")

    def answer(self) -> Message:
        """The answer that ends the stream."""
        while (message := self.next()) is not None:
            if "method" not in message:
                return message
        raise AssertionError("the stream ended without an answer")

    def close(self) -> None:
        """Hang up, whatever is still to come."""
        self._response.close()
        self._connection.close()


class Plain:
    """Sends messages to an endpoint, each on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._ids = count(1)

    def send(self, verb: str, headers: Mapping[str, str], body: Message | None = None) -> Stream:
        """Send any request."""
        connection = HTTPConnection(self._place.netloc, timeout=ANSWER_SECONDS)
        connection.request(
            verb, self._place.path, None if body is None else json.dumps(body), {**JSON_HEADERS, **headers}
        )
        return Stream(connection, connection.getresponse())

    def request(self, method: str, params: Message, id: Any = None) -> Message:
        """A request, with the next number for its id unless one is given."""
        id = next(self._ids) if id is None else id
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def begin(self, method: str, params: Message, id: Any = None) -> Stream:
        """Send a request; what comes back is for the caller to read."""
        raise NotImplementedError

    def ask(self, method: str, params: Message) -> Message:
        """The answer to a request, a result or an error."""
        stream = self.begin(method, params)
        try:
            return stream.answer()
        finally:
            stream.close()


class Handshaker(Plain):
    """A client of the handshake era that opens no stream by itself."""

    def __init__(
        self, url: str, capabilities: Message | None = None, version: str = LEGACY, name: str = "raw"
    ) -> None:
        super().__init__(url)
        who = CLIENT_INFO | {"name": name}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": who}
        reply = self.send("POST", {}, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        (self.welcome_text,) = reply.texts()
        self.welcome: Message = json.loads(self.welcome_text)["result"]
        self.id = reply.headers["Mcp-Session-Id"]
        self._headers = {"MCP-Protocol-Version": version, "Mcp-Session-Id": self.id}
        self.tell("notifications/initialized")

    def tell(self, method: str, params: Message | None = None) -> None:
        """Send a notification."""
        self._post({"method": method} | ({"params": params} if params else {}))

    def reply(self, question: Message, **outcome: Any) -> None:
        """Answer a question with a result or an error."""
        self._post({"id": question["id"]} | outcome)

    def _post(self, message: Message) -> None:
        sent = self.send("POST", self._headers, {"jsonrpc": "2.0"} | message)
        sent.close()
        assert sent.status == 202, sent.status

    def begin(self, method: str, params: Message, id: Any = None) -> Stream:
        """Send a request; what comes back is for the caller to read."""
        return self.send("POST", self._headers, self.request(method, params, id))

    def call(self, tool: str, **arguments: Any) -> Stream:
        """Begin to call a tool."""
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    @contextmanager
    def listening(self, last_id: str = "") -> Iterator[Stream]:
        """The stream for what comes unasked, or the rest of another one."""
        place = {"Last-Event-ID": last_id} if last_id else {}
        stream = self.send("GET", self._headers | place)
        try:
            assert stream.status == 200, stream.status
            yield stream
        finally:
            stream.close()

    def leave(self) -> None:
        """End the session."""
        self.send("DELETE", self._headers).close()


class Stateless(Plain):
    """A client of the stateless era."""

    def __init__(self, url: str, capabilities: Message | None = None, name: str = "raw") -> None:
        super().__init__(url)
        self._meta = ENVELOPE | {
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
            "io.modelcontextprotocol/clientInfo": CLIENT_INFO | {"name": name},
        }

    def begin(self, method: str, params: Message, id: Any = None) -> Stream:
        """Send a request; what comes back is for the caller to read."""
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        named = params.get("name", params.get("uri"))
        if named is not None:
            headers["Mcp-Name"] = named
        params = params | {"_meta": self._meta | params.get("_meta", {})}
        return self.send("POST", headers, self.request(method, params, id))

    def call(self, tool: str, arguments: Message, **more: Any) -> Message:
        """The answer to a call of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments} | more)
