"""A gateway on stdio, and a client that writes lines and reads them with a bound."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testkit.clients.plain_http import META, SECONDS, request
from testkit.gateway_process import clean_environment, serve_command
from testkit.waiting import wait_until

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class StdioClient:
    """The program that started the gateway."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._listening = True
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
            if not self._listening:
                break
        self._lines.put(b"")

    def stop_listening(self) -> None:
        """Close the other end of the gateway's output."""
        self._listening = False
        self.tell(request("ping", id="the last thing heard"))
        self._thread.join(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def line(self, seconds: float = SECONDS) -> bytes:
        """The next line; empty at the end; raises queue.Empty when none comes."""
        line = self._lines.get(timeout=seconds)
        if line:
            self.heard.append(line)
        return line

    def message(self) -> dict[str, Any]:
        """The next message."""
        line = self.line()
        assert line, f"the gateway closed its output: {self.log()[-2000:]}"
        assert line.endswith(b"\n")
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def about(self, id: Any) -> list[dict[str, Any]]:
        """Everything that is said until a request is answered, apart from changed lists."""
        told: list[dict[str, Any]] = []
        while not told or "method" in told[-1] or told[-1].get("id") != id:
            message = self.message()
            if message.get("method") != "notifications/tools/list_changed":
                told.append(message)
        return told

    def answer(self, id: Any) -> dict[str, Any]:
        """The answer to a request; what is said before it is skipped."""
        return self.about(id)[-1]

    def wait_until_ready(self, server: str) -> None:
        """Wait until the gateway has said of a server that it is ready."""
        said = f'"event":"upstream ready","server":"{server}"'
        wait_until(lambda: said in self.log(), SECONDS, f"{server} is ready")

    def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        self.tell(request(method, params, id))
        return self.answer(id)

    def ask_modern(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        params = dict(params or {})
        return self.ask(method, params | {"_meta": {**META, **params.get("_meta", {})}}, id)

    def shake_hands(self) -> dict[str, Any]:
        answer = self.ask("initialize", HELLO, 0)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def hang_up(self, seconds: float = SECONDS) -> int:
        """Close the gateway's input, read the rest, and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(seconds)
        while self.line():
            continue
        return code

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def running_stdio_gateway(
    config: Mapping[str, Any],
    directory: Path,
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[StdioClient]:
    """Run a gateway on stdio, as a client does; it is killed with the block if it still runs."""
    directory.mkdir(parents=True, exist_ok=True)
    path, log = directory / "headgate.json", directory / "gateway.log"
    path.write_text(json.dumps(config), encoding="utf-8")
    command = serve_command(path, directory / "data", *options, transport="stdio")
    settings = {"MCPPROXY_LOG_FORMAT": "json", **(environment or {})}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=clean_environment() | settings,
            start_new_session=True,
        )
    client = StdioClient(process, log)
    try:
        yield client
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            # What was not read any more is of no interest.
            try:
                pipe.close()
            except BrokenPipeError:
                os.close(pipe.fileno())
