"""`uvx` and `npx` install and run servers behind a real proxy, from a registry with a private certificate."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import modern_call
from testkit.gateway_process import running_gateway
from testkit.network import NAME, Authority, Proxy, proxying
from testkit.registry import PACKAGE, registry
from testkit.upstreams import configuration

START_SECONDS = 60.0
UVX: dict[str, Any] = {"command": "uvx", "args": [PACKAGE]}
NPX: dict[str, Any] = {"command": "npx", "args": ["-y", PACKAGE]}


def environment(home: Path, authority: Authority, proxy: Proxy, origin: str) -> dict[str, str]:
    """The proxy, the authority and the registries of a company, and nothing of this machine."""
    unset = {name: "" for name in os.environ if name.lower().startswith(("npm_config_", "uv_", "pip_"))}
    unset |= dict.fromkeys(
        ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "no_proxy", "https_proxy", "SSL_CERT_DIR"), ""
    )
    return unset | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "HTTPS_PROXY": proxy.url,
        "SSL_CERT_FILE": str(authority.file),
        "NODE_EXTRA_CA_CERTS": str(authority.file),
        "UV_DEFAULT_INDEX": f"{origin}/simple",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_PYTHON": sys.executable,
        "npm_config_registry": f"{origin}/",
        "npm_config_cache": str(home / "npm"),
        "npm_config_globalconfig": str(home / "npmrc"),
        "npm_config_update_notifier": "false",
    }


@pytest.mark.parametrize(("entry", "answer"), [(UVX, "python"), (NPX, "node")], ids=["uvx", "npx"])
def test_a_server_is_installed_through_the_proxy_and_answers(
    tmp_path: Path, entry: dict[str, Any], answer: str
) -> None:
    authority = Authority(tmp_path / "authority")
    with proxying() as proxy, registry(authority.server_context()) as origin:
        settings = environment(tmp_path, authority, proxy, origin)
        with running_gateway(
            configuration({"it": entry}),
            tmp_path / "gateway",
            environment=settings,
            start_seconds=START_SECONDS,
        ) as gateway:
            gateway.wait_until_ready(seconds=START_SECONDS)
            assert modern_call(gateway, "it_who")["content"] == [{"type": "text", "text": answer}]
        assert {host.rpartition(":")[0] for host in proxy.tunnels} == {NAME}


@pytest.mark.parametrize("entry", [UVX, NPX], ids=["uvx", "npx"])
def test_without_the_private_certificate_the_cause_is_shown(tmp_path: Path, entry: dict[str, Any]) -> None:
    authority = Authority(tmp_path / "authority")
    stranger = Authority(tmp_path / "stranger")
    with proxying() as proxy, registry(authority.server_context()) as origin:
        settings = environment(tmp_path, stranger, proxy, origin) | {"npm_config_fetch_retries": "0"}
        settings |= {"UV_HTTP_RETRIES": "0"}
        with running_gateway(
            configuration({"it": entry}),
            tmp_path / "gateway",
            environment=settings,
            start_seconds=START_SECONDS,
        ) as gateway:
            assert "certificate" in gateway.servers()["it"]["last_error"].lower()
        assert proxy.tunnels
