"""URL servers over HTTP/2, judged by Node's implementation of it."""

import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from testkit.clients.plain_http import JSON_HEADERS, MODERN, SECONDS, modern, modern_call, modern_request
from testkit.gateway_process import HOST, GatewayProcess, running_gateway
from testkit.network import NAME, Authority, proxying
from testkit.upstreams import SERVERS, configuration, era_server
from testkit.waiting import wait_until


class Http2Server:
    """A server of one era behind HTTP/2."""

    def __init__(self, url: str, journal: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process
        self._journal = journal

    def lines(self) -> list[str]:
        return self._journal.read_text().splitlines() if self._journal.exists() else []


@contextmanager
def http2_server(plain: str, authority: Authority, journal: Path, *more: str) -> Iterator[Http2Server]:
    cert, key = authority.sign("http2")
    command = ["node", str(SERVERS / "http2.mjs"), str(cert), str(key), plain, str(journal), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Http2Server(f"https://{NAME}:{port}/mcp", journal, process)
        finally:
            process.kill()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return the authority of the server's certificate."""
    return Authority(tmp_path / "authority")


@contextmanager
def gateway_before(
    era: str, authority: Authority, directory: Path, *more: str
) -> Iterator[tuple[GatewayProcess, Http2Server]]:
    """Run a gateway that reaches a server over HTTP/2 and through a proxy."""
    with (
        proxying() as proxy,
        era_server(era, directory / "calls") as plain,
        http2_server(plain, authority, directory / "journal", *more) as server,
    ):
        entry = {"url": server.url, "http2": True, "proxy": proxy.url, "caFile": str(authority.file)}
        with running_gateway(configuration({"it": entry}), directory / "gateway") as gateway:
            gateway.wait_until_ready()
            yield gateway, server


def tools(gateway: GatewayProcess) -> set[str]:
    return {tool["name"] for tool in modern(gateway, "tools/list").json()["result"]["tools"]}


def echo(gateway: GatewayProcess, text: str) -> str:
    echoed: str = modern_call(gateway, "it_echo", {"text": text})["structuredContent"]["echoed"]
    return echoed


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_of_either_era_is_reached_over_http2(authority: Authority, tmp_path: Path, era: str) -> None:
    with gateway_before(era, authority, tmp_path) as (gateway, server):
        assert modern_call(gateway, "it_echo", {"text": "hello"})["structuredContent"] == {"echoed": "hello"}
        # Larger than every window on the way, there and back.
        assert modern_call(gateway, "it_echo", {"text": "x" * 3_000_000})["content"]
        modern_call(gateway, "it_grow", {"text": "fresh"})
        wait_until(lambda: "it_fresh" in tools(gateway), SECONDS, "its stream says that the list has changed")
        assert "2.0 POST" in server.lines()
        assert not [line for line in server.lines() if line.startswith("1.1")]


def test_many_calls_at_once_share_connections(authority: Authority, tmp_path: Path) -> None:
    with gateway_before("modern", authority, tmp_path) as (gateway, server), ThreadPoolExecutor(24) as pool:
        # More than the four streams that the server allows on a connection.
        answers = list(pool.map(lambda number: echo(gateway, f"call {number}"), range(48)))
        assert answers == [f"call {number}" for number in range(48)]
        assert server.lines().count("session") < 16


def test_a_call_that_is_cancelled_ends_its_stream_and_no_other(authority: Authority, tmp_path: Path) -> None:
    with gateway_before("modern", authority, tmp_path) as (gateway, server):
        journal, never = tmp_path / "calls", tmp_path / "never"
        message = modern_request(
            "tools/call", {"name": "it_hold", "arguments": {"text": "long", "until": str(never)}}
        )
        headers = JSON_HEADERS | {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "it_hold",
        }
        client = HTTPConnection(HOST, gateway.port, timeout=SECONDS)
        client.request("POST", "/mcp", json.dumps(message).encode(), headers)
        wait_until(
            lambda: journal.exists() and "started long" in journal.read_text(), SECONDS, "it is called"
        )
        client.close()
        wait_until(lambda: "aborted" in server.lines(), SECONDS, "the stream is cancelled at the server")
        assert echo(gateway, "still here")


def test_a_server_that_leaves_is_reached_again_on_another_connection(
    authority: Authority, tmp_path: Path
) -> None:
    with gateway_before("modern", authority, tmp_path) as (gateway, server):
        assert echo(gateway, "one")
        sessions = server.lines().count("session")
        server.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: "goaway" in server.lines(), SECONDS, "it leaves")
        assert echo(gateway, "two")
        assert server.lines().count("session") > sessions
        # A connection of HTTP is not the connection to the server.
        assert not gateway.servers()["it"].get("restarts")


def test_a_server_without_http2_is_reached_over_http1(authority: Authority, tmp_path: Path) -> None:
    with gateway_before("modern", authority, tmp_path, "only1") as (gateway, server):
        assert echo(gateway, "hello")
        assert {line for line in server.lines() if line[0].isdigit()} == {"1.1 POST"}


def test_without_its_package_the_server_says_what_to_install(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "h2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named h2', name='h2')\n")
    config = configuration({"it": {"url": f"https://{NAME}/mcp", "http2": True}})
    settings = {"PYTHONPATH": str(package.parent)}
    with running_gateway(config, tmp_path / "gateway", environment=settings) as gateway:
        wait_until(lambda: "last_error" in gateway.servers()["it"], SECONDS, "it has failed")
        said = gateway.servers()["it"]["last_error"]
        assert (
            said
            == f"its http2 needs the package 'h2': pip install \"headgate-mcp[http2]\" (https://{NAME}/mcp)"
        )


@pytest.mark.parametrize("version", ["only1", "any"])
def test_a_server_that_wants_a_client_certificate_says_so_until_it_is_shown_one(
    authority: Authority, tmp_path: Path, version: str
) -> None:
    cert, key = authority.sign("gateway")
    with (
        proxying() as proxy,
        era_server("modern", tmp_path / "calls") as plain,
        http2_server(plain, authority, tmp_path / "journal", version, str(authority.file)) as server,
    ):
        entry = {
            "url": server.url,
            "http2": version == "any",
            "proxy": proxy.url,
            "caFile": str(authority.file),
        }
        with running_gateway(configuration({"it": entry}), tmp_path / "gateway") as gateway:
            wait_until(lambda: "last_error" in gateway.servers()["it"], SECONDS, "it has failed")
            assert (
                "asks for a client certificate, which clientCert may name"
                in gateway.servers()["it"]["last_error"]
            )
            shown = {"clientCert": {"cert": str(cert), "key": str(key)}}
            gateway.write_config(configuration({"it": entry | shown}))
            gateway.wait_until_ready()
            assert echo(gateway, "hello")
