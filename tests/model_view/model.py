"""A scripted model on loopback: it makes the tool calls of a script, then ends, and records every request."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testkit.gateway_process import HOST
from tests.model_view.dialects import Body, Dialect, OfferedTool, ToolUse, dialect_of

LAST_WORDS = "That is all."
CLOSE_SECONDS = 5.0
_CACHE_ID = re.compile(r"\b[0-9a-f]{24}\b")


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the script; arguments may depend on what the model has read in earlier steps."""

    label: str
    tool: str
    arguments: Body | Callable[[Mapping[str, str]], Body] = field(default_factory=dict)

    def use(self, tool: OfferedTool, number: int, read: Mapping[str, str], added: Body) -> ToolUse:
        """Return the call as the model makes it."""
        arguments = self.arguments(read) if callable(self.arguments) else self.arguments
        return ToolUse(f"call_{number:02}", tool, arguments | added)


def cache_id_in(text: str) -> str:
    """Return the id of a stored result that a text names, or a word that no store knows."""
    found = _CACHE_ID.search(text)
    return found[0] if found else "no-cache-id-was-shown"


@dataclass(slots=True)
class ModelView:
    """What the model saw in one conversation."""

    tools: list[OfferedTool]
    results: dict[str, str]
    instructions: str

    @property
    def names(self) -> list[str]:
        """Return the names of the offered tools as the model sees them."""
        return [tool.full_name for tool in self.tools]

    def named(self, suffix: str) -> OfferedTool:
        """Return the offered tool of that name, whatever the agent puts before it."""
        found = resolve(self.tools, suffix)
        assert found is not None, f"no tool {suffix} among {self.names}"
        return found


def resolve(tools: Sequence[OfferedTool], name: str) -> OfferedTool | None:
    """Return the tool whose name is `name`, or ends with it behind the prefix of an agent."""
    found = [
        tool
        for tool in tools
        if tool.full_name == name or re.search(rf"[^A-Za-z0-9]{re.escape(name)}$", tool.full_name)
    ]
    return min(found, key=lambda tool: len(tool.full_name), default=None)


class ScriptedModel:
    """Answers the requests of one agent by a script."""

    def __init__(self, steps: Sequence[Step], added: Mapping[str, Any] | None = None) -> None:
        self._steps = steps
        # Given with every call, because the agent offers it with every tool.
        self._added = dict(added or {})
        self._lock = threading.Lock()
        self.url = ""
        # Each request as (path, body), in the order of arrival.
        self.requests: list[tuple[str, Any]] = []
        # Requests that continue the script, with the API that they speak.
        self._turns: list[tuple[Dialect, Body]] = []
        self.problems: set[str] = set()

    def reply(self, path: str, body: Any) -> tuple[int, str, bytes]:
        """Return status, media type and body of the answer to one request."""
        with self._lock:
            self.requests.append((path, body))
            dialect = dialect_of(path)
            if dialect is None or not isinstance(body, dict):
                return 404, "application/json", b'{"error":{"type":"not_found_error","message":"scripted"}}'
            stream = dialect.streams(path, body)
            return 200, *dialect.answer(self._turn(dialect, body), stream=stream)

    def refuse(self, path: str, reason: str) -> tuple[int, str, bytes]:
        """Return the answer to a request that cannot be read, and keep the reason for `progress`."""
        with self._lock:
            self.requests.append((path, None))
            self.problems.add(reason)
        return 415, "application/json", json.dumps({"error": {"message": reason}}).encode()

    def _turn(self, dialect: Dialect, body: Body) -> ToolUse | str:
        tools, results = dialect.tools(body), dialect.results(body)
        number = len(results)
        if number < len(self._steps):
            step = self._steps[number]
            tool = resolve(tools, step.tool)
            if tool is None:
                self.problems.add(f"{step.tool} is not offered, but {[each.full_name for each in tools]}")
                return LAST_WORDS
            self._turns.append((dialect, body))
            return step.use(tool, number, self._labelled(results), self._added)
        self._turns.append((dialect, body))
        return LAST_WORDS

    def _labelled(self, results: Mapping[str, str]) -> dict[str, str]:
        return {self._steps[int(id[-2:])].label: text for id, text in results.items()}

    @property
    def complete(self) -> bool:
        """Say whether the model has read the result of every step."""
        return bool(self._turns) and len(self._last_results()) == len(self._steps)

    def progress(self) -> str:
        """Say how far the conversation came, for the message of a failure."""
        read = sorted(self._labelled(self._last_results())) if self._turns else []
        paths = [path for path, _ in self.requests]
        return f"the model read {read}; problems: {sorted(self.problems)}; requests: {paths}"

    def _last_results(self) -> dict[str, str]:
        dialect, body = self._turns[-1]
        return dialect.results(body)

    def view(self) -> ModelView:
        """Return what the model saw: the tools of the first turn and the result of every call."""
        dialect, first = self._turns[0]
        return ModelView(dialect.tools(first), self._labelled(self._last_results()), _instructions(first))


def _instructions(body: Body) -> str:
    """Return everything that the request says before the tools are used."""
    shown = [body.get(key) for key in ("system", "instructions", "systemInstruction")]
    return json.dumps([*shown, body.get("messages"), body.get("input"), body.get("contents")])


@contextmanager
def serving(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """Serve the model on a port of its own."""
    server = ThreadingHTTPServer((HOST, 0), _handler(model))
    server.daemon_threads = True
    model.url = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(CLOSE_SECONDS)


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # One answer on each connection: an agent that keeps connections would hold up the end of a test.
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if encoding := self.headers.get("Content-Encoding"):
                self._send(
                    *model.refuse(self.path, f"{self.path} came in {encoding}: switch compression off")
                )
            else:
                self._send(*model.reply(self.path, json.loads(content) if content else None))

        def do_GET(self) -> None:
            self._send(*model.reply(self.path, None))

        def _send(self, status: int, media_type: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
