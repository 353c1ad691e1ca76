"""Clients without an SDK, for what no SDK does: leave in the middle, come back, hand in what was changed."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from tests.real.source_text_clients import ANSWER_SECONDS, LEGACY, MODERN, VISITOR

Message = dict[str, Any]
BOTH = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
# Everything that a client can declare to answer.
ANSWERS_ALL: Message = {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}}


class Stream:
    """One response as it comes: events, or a single message."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.streamed = response.headers.get_content_subtype() == "event-stream"
        # The place to come back to.
        self.last_id = ""
        self.headers = response.headers

    def next(self) -> Message | None:
        """The next message, or None at the end; raises TimeoutError when none comes."""
        if not self.streamed:
            body = self._response.read()
            return json.loads(body) if body else None
        data, give_up_at = "", time.monotonic() + ANSWER_SECONDS
        while line := self._response.readline().decode():
            field, _, value = line.rstrip("\r\n").partition(":")
            if field == "id":
                self.last_id = value.strip()
            elif field == "data":
                data += value.strip()
            elif not line.strip() and data:
                message: Message = json.loads(data)
                return message
            if time.monotonic() > give_up_at:
                # Signs of life keep the socket from saying so.
                raise TimeoutError(f"no message within {ANSWER_SECONDS} s")
        return None

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
        connection = HTTPConnection(self._place.netloc, timeout=ANSWER_SECONDS)
        connection.request(
            verb, self._place.path, None if body is None else json.dumps(body), {**BOTH, **headers}
        )
        return Stream(connection, connection.getresponse())


class Handshaker(Plain):
    """A client of the handshake era that opens no stream by itself."""

    def __init__(
        self, url: str, capabilities: Message | None = None, version: str = LEGACY, name: str = "raw"
    ) -> None:
        super().__init__(url)
        who = VISITOR | {"name": name}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": who}
        reply = self.send("POST", {}, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.welcome: Message = (reply.next() or {})["result"]
        reply.close()
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

    def begin(self, method: str, params: Message) -> Stream:
        """Send a request; what comes back is for the caller to read."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return self.send("POST", self._headers, message)

    def call(self, tool: str, **arguments: Any) -> Stream:
        """Begin to call a tool."""
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    def ask(self, method: str, params: Message) -> Message:
        """The answer to a request, a result or an error."""
        stream = self.begin(method, params)
        try:
            return stream.answer()
        finally:
            stream.close()

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
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
            "io.modelcontextprotocol/clientInfo": VISITOR | {"name": name},
        }

    def begin(self, method: str, params: Message) -> Stream:
        """Send a request; what comes back is for the caller to read."""
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        named = params.get("name", params.get("uri"))
        if named is not None:
            headers["Mcp-Name"] = named
        params = params | {"_meta": self._meta | params.get("_meta", {})}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return self.send("POST", headers, message)

    def ask(self, method: str, params: Message) -> Message:
        """The answer to a request, a result or an error."""
        stream = self.begin(method, params)
        try:
            return stream.answer()
        finally:
            stream.close()

    def call(self, tool: str, arguments: Message, **more: Any) -> Message:
        """The answer to a call of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments} | more)
