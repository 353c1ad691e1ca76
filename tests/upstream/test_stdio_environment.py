"""A child process of the gateway gets what reaches the network, and what its operator names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import SECONDS, modern_call, scripted
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.waiting import wait_until

NETWORK = {
    "SSL_CERT_FILE": "/etc/ssl/own.pem",
    "SSL_CERT_DIR": "/etc/ssl/own",
    "NODE_EXTRA_CA_CERTS": "/etc/ssl/extra.pem",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://ada:pa@127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "NO_PROXY": "localhost,.example.com",
    "TZ": "Europe/Berlin",
    "TMPDIR": "/tmp",
    "npm_config_registry": "https://npm.example.com/",
    "UV_INDEX_URL": "https://pypi.example.com/simple",
    "PIP_INDEX_URL": "https://pypi.example.com/simple",
}
PRIVATE = {
    "npm_config_//npm.example.com/:_authToken": "npm_t",
    "UV_INDEX_PRIVATE_PASSWORD": "pa",
    "PIP_EXTRA_INDEX_URL": "https://ada:pa@pypi.example.com/simple",
    "SECRET_TOKEN": "s",
    "NODE_OPTIONS": "--no-warnings",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway with both kinds of variables, before children that inherit more or less of them."""
    directory = tmp_path_factory.mktemp("variables")
    journal = directory / "journal"
    servers: dict[str, Any] = {
        "plain": scripted(journal, TZ="UTC"),
        "names": scripted(journal) | {"inheritEnv": ["UV_INDEX_PRIVATE_*", "NODE_OPTIONS", "NOT_SET"]},
        "all": scripted(journal) | {"inherit_env": ["*"]},
    }
    config = {"mcpServers": servers, "proxySettings": {"inheritEnv": ["TEAM_*"]}}
    environment = NETWORK | PRIVATE | {"TEAM_NAME": "t"}
    with running_gateway(config, directory / "gateway", environment=environment) as gateway:
        gateway.wait_until_ready()
        yield gateway


def variables(gateway: GatewayProcess, server: str) -> dict[str, str]:
    lines = modern_call(gateway, f"{server}_look")["structuredContent"]["environment"]
    return dict(line.split("=", 1) for line in lines)


def test_a_child_gets_what_reaches_the_network_and_no_credential(gateway: GatewayProcess) -> None:
    seen = variables(gateway, "plain")
    assert seen.items() >= (NETWORK | {"TZ": "UTC", "TEAM_NAME": "t"}).items()
    assert not seen.keys() & PRIVATE.keys()


def test_a_child_gets_what_its_entry_names(gateway: GatewayProcess) -> None:
    seen = variables(gateway, "names")
    assert seen.keys() & PRIVATE.keys() == {"UV_INDEX_PRIVATE_PASSWORD", "NODE_OPTIONS"}
    assert seen["TEAM_NAME"] == "t"
    assert "NOT_SET" not in seen


def test_a_star_stands_for_everything_that_loads_no_code(gateway: GatewayProcess) -> None:
    seen = variables(gateway, "all")
    assert PRIVATE.keys() - seen.keys() == {"NODE_OPTIONS"}


def test_the_log_names_what_loads_code_and_what_was_withheld_without_its_value(
    gateway: GatewayProcess,
) -> None:
    log = gateway.log()
    assert "inheritEnv of server 'names' passes on 'NODE_OPTIONS'" in log
    assert "PIP_EXTRA_INDEX_URL, UV_INDEX_PRIVATE_PASSWORD, npm_config_//npm.example.com/:_authToken" in log
    assert "ada" not in log
    assert "npm_t" not in log


def test_a_change_of_inherit_env_starts_the_child_anew(tmp_path: Path) -> None:
    entry = scripted(tmp_path / "journal")
    with running_gateway({"mcpServers": {"it": entry}}, tmp_path / "gateway", environment=PRIVATE) as gateway:
        gateway.wait_until_ready()
        assert "SECRET_TOKEN" not in variables(gateway, "it")
        before = gateway.servers()["it"]["pid"]
        gateway.write_config({"mcpServers": {"it": entry}, "proxySettings": {"inheritEnv": ["SECRET_*"]}})
        wait_until(lambda: gateway.servers()["it"].get("pid", before) != before, SECONDS, "another child")
        gateway.wait_until_ready()
        assert variables(gateway, "it")["SECRET_TOKEN"] == "s"
