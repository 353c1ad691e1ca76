"""A gateway that runs as a real child process, as its users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from testkit.waiting import wait_until

HOST = "127.0.0.1"
START_SECONDS = 15.0  # A start takes well under a second; a loaded machine may take many times that.
STOP_SECONDS = 15.0  # Longer than the gateway gives its children to end before it kills them.
ANSWER_SECONDS = 10.0
LOG_TAIL_CHARACTERS = 4000
TRACEBACK = "Traceback (most recent call last)"


class GatewayProcessFailed(AssertionError):
    """The gateway did not start, ended by itself, did not stop, or logged a traceback."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


@dataclass(slots=True)
class GatewayProcess:
    """One running gateway: where it listens, what it says about itself, how to end it."""

    process: subprocess.Popen[bytes]
    port: int
    config_path: Path
    data_dir: Path
    log_path: Path
    _expected_to_end: bool = field(default=False, init=False)

    @property
    def pid(self) -> int:
        """Return the process id of the gateway."""
        return self.process.pid

    @property
    def origin(self) -> str:
        """Return the address without a path."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Return the address of the streamable HTTP endpoint."""
        return f"{self.origin}/mcp"

    @property
    def sse_url(self) -> str:
        """Return the address of the legacy SSE endpoint."""
        return f"{self.origin}/sse"

    def get(self, path: str, *, seconds: float = ANSWER_SECONDS) -> HttpAnswer:
        """Send one GET on a connection of its own; raises OSError or HTTPException without an answer."""
        return http_get(self.port, path, seconds=seconds)

    def ready(self) -> dict[str, Any]:
        """Return what /ready says, whatever its status."""
        report: dict[str, Any] = self.get("/ready").json()
        return report

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return the state of each server by its name."""
        return {server["name"]: server for server in self.ready().get("servers", [])}

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics, each under its name with its labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def log(self) -> str:
        """Return everything logged so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """Return the end of the log, for the message of a failure."""
        return self.log()[-LOG_TAIL_CHARACTERS:]

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration in one step, as a careful editor does."""
        draft = self.config_path.with_suffix(".draft")
        draft.write_text(json.dumps(config, indent=2), encoding="utf-8")
        draft.replace(self.config_path)

    def wait_until_tried(self, seconds: float = START_SECONDS) -> None:
        """Return once each server is ready, disabled, or has failed at least once."""
        wait_until(lambda: all(map(_was_tried, self.servers().values())), seconds, "every server tried")

    def wait_until_ready(self, *names: str, seconds: float = START_SECONDS) -> None:
        """Return once the named servers are ready; all of them when none is named."""

        def ready() -> bool:
            servers = self.servers()
            return all(servers.get(name, {}).get("state") == "ready" for name in names or servers)

        wait_until(ready, seconds, f"ready: {', '.join(names) or 'every server'}")

    def kill(self) -> None:
        """End the gateway with SIGKILL, so that it can clean up nothing, and wait until it is gone."""
        self._expected_to_end = True
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Send SIGTERM and return the exit code; raises GatewayProcessFailed if the gateway stays."""
        self._check_alive()
        self._expected_to_end = True
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"the gateway did not stop within {seconds:g} s of SIGTERM\n{self.log_tail()}"
            raise GatewayProcessFailed(message) from None

    def answers(self) -> bool:
        """Say whether /health answers 200; raises GatewayProcessFailed if the process has ended."""
        self._check_alive()
        try:
            return self.get("/health", seconds=1.0).status == 200
        except (OSError, HTTPException):
            return False

    def close(self, *, tracebacks_expected: bool) -> None:
        """Stop the gateway unless the test has ended it, then look for tracebacks in its log."""
        if not self._expected_to_end:
            self.stop()
        if not tracebacks_expected and TRACEBACK in self.log():
            first = self.log().index(TRACEBACK)
            raise GatewayProcessFailed(
                f"the gateway logged a traceback\n{self.log()[first:][:LOG_TAIL_CHARACTERS]}"
            )

    def _check_alive(self) -> None:
        code = self.process.poll()
        if code is not None and not self._expected_to_end:
            self._expected_to_end = True
            raise GatewayProcessFailed(
                f"the gateway ended by itself with exit code {code}\n{self.log_tail()}"
            )


def http_get(port: int, path: str, *, seconds: float = ANSWER_SECONDS) -> HttpAnswer:
    """Send one GET on a connection of its own; raises OSError or HTTPException without an answer."""
    connection = HTTPConnection(HOST, port, timeout=seconds)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return HttpAnswer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def free_port() -> int:
    """Return a port on the loopback address that had no listener a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_gateway(
    config: Mapping[str, Any],
    directory: Path,
    *,
    program: str = "headgate",
    transport: str = "http",
    port: int | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    wait_for_servers: bool = True,
    start_seconds: float = START_SECONDS,
    tracebacks_expected: bool = False,
    ulimit: str = "",
) -> Iterator[GatewayProcess]:
    """Run a gateway with its configuration, data and log in `directory`; raises GatewayProcessFailed.

    The tools that read stored results are listed only where the configuration says so: most tests are about
    those of servers.

    It blocks while it waits, so run it in a thread when the loop of the caller also serves an upstream.
    Expect tracebacks only where an upstream writes its own to stderr. `ulimit` is what the shell sets for the
    gateway before it starts, as `-n 64`. `program` is a module that takes the arguments of `headgate serve`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    gateway = _start(
        config, directory, program, transport, port or free_port(), options, environment or {}, ulimit
    )
    try:
        wait_until(gateway.answers, start_seconds, "/health answers 200")
        if wait_for_servers:
            gateway.wait_until_tried(start_seconds)
        yield gateway
    except TimeoutError as error:
        error.add_note(f"the log of the gateway ends with:\n{gateway.log_tail()}")
        raise
    finally:
        try:
            gateway.close(tracebacks_expected=tracebacks_expected)
        finally:
            _make_sure_it_is_gone(gateway)


def _start(
    config: Mapping[str, Any],
    directory: Path,
    program: str,
    transport: str,
    port: int,
    options: Sequence[str],
    environment: Mapping[str, str],
    ulimit: str,
) -> GatewayProcess:
    config_path, data_dir, log_path = (
        directory / "headgate.json",
        directory / "data",
        directory / "gateway.log",
    )
    settings = {"listResultTools": False} | dict(config.get("proxySettings") or {})
    config_path.write_text(json.dumps({**config, "proxySettings": settings}, indent=2), encoding="utf-8")
    command = serve_command(
        config_path,
        data_dir,
        *options,
        transport=transport,
        port=port,
        program=("-m", program),
        ulimit=ulimit,
    )
    # Appended to, so that a second gateway in the same directory keeps what the first one said.
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environment() | {"MCPPROXY_LOG_FORMAT": "json"} | dict(environment),
            # Out of the terminal's process group: an interrupt reaches the tests, and they stop the gateway.
            start_new_session=True,
        )
    return GatewayProcess(process, port, config_path, data_dir, log_path)


def serve_command(
    config: Path,
    data_dir: Path,
    *options: str,
    transport: str = "http",
    port: int = 0,
    program: Sequence[str] = ("-m", "headgate"),
    ulimit: str = "",
) -> list[str]:
    """The command of a gateway; `program` is what Python runs, `ulimit` what the shell sets for it."""
    command = [sys.executable, *program, "serve", "--config", str(config), "--transport", transport]
    if transport != "stdio":
        command += ["--host", HOST, "--port", str(port)]
    command += ["--data-dir", str(data_dir), *options]
    limited = ["/bin/sh", "-c", f'ulimit {ulimit} && exec "$@"', "sh"] if ulimit else []
    return limited + command


def clean_environment() -> dict[str, str]:
    """Return the environment of the tests without any setting meant for a gateway."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MCPPROXY_")}


def _was_tried(server: Mapping[str, Any]) -> bool:
    return server.get("state") != "starting" or "last_error" in server


def _make_sure_it_is_gone(gateway: GatewayProcess) -> None:
    if gateway.process.poll() is None:
        gateway.kill()
