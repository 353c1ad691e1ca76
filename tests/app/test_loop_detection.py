"""Entries that are the gateway itself by their definition, and those that only look so."""

import socket
from pathlib import Path
from typing import Any

import pytest

from headgate.app.loop_detection import chain_of, refuse_loop, refuse_own_entry
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError, GatewayLoop
from headgate.domain.gateway_chain import GatewayChain, GatewayIdentity
from headgate.domain.server_spec import ServerSpec, TransportType

CONFIG = Path("/etc/gate/headgate.json")
SERVE = ["serve", "--transport", "stdio"]


def settings_of(**settings: Any) -> Settings:
    return Settings(data_dir=Path("/nowhere"), **settings)


def is_itself(spec: ServerSpec, **settings: Any) -> bool:
    try:
        refuse_own_entry(spec, settings_of(config_path=CONFIG, **settings))
    except GatewayLoop as loop:
        return "'self' is this gateway itself" in loop.reason
    return False


def at(url: str, host: str = "127.0.0.1", port: int = 8000, **settings: Any) -> bool:
    transport = TransportType.SSE if url.endswith("/sse") else TransportType.STREAMABLE_HTTP
    spec = ServerSpec(name="self", transport=transport, url=url)
    return is_itself(spec, **{"host": host, "port": port, "transport": "http", **settings})


def by(*command: str, cwd: str | None = None) -> bool:
    return is_itself(
        ServerSpec(name="self", transport=TransportType.STDIO, command=command[0], args=command[1:], cwd=cwd)
    )


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8000/mcp", "127.0.0.1"),
        ("http://localhost:8000/mcp/slim", "127.0.0.1"),
        ("http://LOCALHOST.:8000/sse", "127.0.0.1"),
        ("http://x.localhost:8000/mcp", "127.0.0.1"),
        ("http://0.0.0.0:8000/mcp", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]:8000/mcp", "127.0.0.1"),
        ("http://[::1]:8000/mcp", "::1"),
        ("http://localhost:8000/mcp", "::1"),
        ("http://[::]:8000/mcp", "::1"),
        ("http://[::1]:8000/mcp", "::"),
        ("http://127.0.0.1:8000/mcp", "::"),
        ("http://127.1.2.3:8000/mcp", "0.0.0.0"),
        ("http://127.0.0.1:8000/mcp", "localhost"),
        ("http://gate.example:8000/mcp?x=1", "gate.example"),
        (f"http://{socket.gethostname()}:8000/mcp", "0.0.0.0"),
    ],
)
def test_an_address_where_the_gateway_listens_is_the_gateway(url: str, host: str) -> None:
    assert at(url, host)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8001/mcp", "127.0.0.1"),
        ("http://127.0.0.1/mcp", "127.0.0.1"),
        ("https://127.0.0.1:8000/mcp", "127.0.0.1"),
        ("http://127.0.0.1:8000/other", "127.0.0.1"),
        ("http://127.0.0.2:8000/mcp", "127.0.0.1"),
        # Another gateway may listen on the same port of another address.
        ("http://[::1]:8000/mcp", "127.0.0.1"),
        ("http://127.0.0.1:8000/mcp", "::1"),
        ("http://[::1]:8000/mcp", "0.0.0.0"),
        ("http://10.0.0.1:8000/mcp", "0.0.0.0"),
        ("http://example.org:8000/mcp", "127.0.0.1"),
        ("http://127.0.0.1:x/mcp", "127.0.0.1"),
    ],
)
def test_any_other_address_is_not(url: str, host: str) -> None:
    assert not at(url, host)


def test_a_gateway_on_stdio_has_no_address() -> None:
    assert not at("http://127.0.0.1:8000/mcp", transport="stdio")


@pytest.mark.parametrize(
    "command",
    [
        ["headgate", *SERVE, "--config", str(CONFIG)],
        ["/usr/bin/headgate", "serve", f"--config={CONFIG}"],
        ["python", "-m", "headgate", "serve", "--config", "/etc/gate/../gate/headgate.json"],
        ["uvx", "headgate", "serve", "--config", str(CONFIG)],
        ["uvx", "--from", "headgate==1.0", "headgate", "serve", "--config", str(CONFIG)],
        ["uvx", "--from", "x", "headgate@1.0", "serve", "--config", str(CONFIG)],
        ["sh", "-c", f"cd /tmp && exec headgate serve --config {CONFIG}"],
        ["/bin/bash", "-lc", f"headgate serve --config '{CONFIG}'"],
    ],
)
def test_a_command_that_serves_the_same_configuration_is_the_gateway(command: list[str]) -> None:
    assert by(*command)


def test_a_relative_path_is_one_of_the_servers_directory() -> None:
    assert by("headgate", "serve", "--config", "headgate.json", cwd="/etc/gate")
    assert not by("headgate", "serve", "--config", "headgate.json", cwd="/etc/other")


@pytest.mark.parametrize(
    "command",
    [
        ["headgate", "serve", "--config", "/etc/other.json"],
        ["headgate", "serve"],
        ["headgate", "serve", "--config"],
        ["headgate", "knowledge", "serve", "--config", str(CONFIG)],
        ["headgate", "listing", "--config", str(CONFIG)],
        ["other", "serve", "--config", str(CONFIG)],
        ["sh", "-c", "echo 'unclosed headgate serve"],
    ],
)
def test_any_other_command_is_not(command: list[str]) -> None:
    assert not by(*command)


def test_a_gateway_whose_servers_all_live_inside_it_may_be_started_by_itself() -> None:
    inside = ServerSpec(name="docs", transport=TransportType.BUILTIN, builtin="knowledge")
    outside = ServerSpec(name="m", transport=TransportType.STDIO, command="m")
    again = GatewayChain(GatewayIdentity("b" * 16, "1" * 16), (GatewayIdentity("a" * 16, "1" * 16),))
    refuse_loop(settings_of(servers=(inside,), config_path=CONFIG), again)
    with pytest.raises(ConfigError, match="same configuration, which would go on without end") as loop:
        refuse_loop(settings_of(servers=(inside, outside), config_path=CONFIG), again)
    assert str(CONFIG) in loop.value.message
    assert "remove the entry" in loop.value.hint


def test_each_gateway_is_an_instance_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "headgate.json").touch()
    (tmp_path / "link.json").symlink_to(tmp_path / "headgate.json")
    first, second = (
        chain_of(settings_of(config_path=tmp_path / name)) for name in ("headgate.json", "link.json")
    )
    assert first.own.instance != second.own.instance
    assert first.own.config == second.own.config
    assert chain_of(settings_of()).own.config == ""
