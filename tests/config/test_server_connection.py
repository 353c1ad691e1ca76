"""The keys of a URL server that say how it is reached."""

import pytest

from headgate.domain.server_spec import TlsFiles
from tests.config.sandbox import ConfigSandbox

URL = "https://mcp.example.com/mcp"


def test_proxy_certificates_and_version_are_read(sandbox: ConfigSandbox) -> None:
    entry = {
        "url": URL,
        "proxy": "http://ada:${PW}@proxy:3128",
        "caFile": "certs/ca.pem",
        "clientCert": {"cert": "~/me.pem", "key": "/etc/me.key", "password": "${PW}"},
        "http2": True,
    }
    spec, warnings = sandbox.load_server(entry, PW="pa")
    assert spec is not None
    assert spec.proxy == "http://ada:pa@proxy:3128"
    assert spec.tls == TlsFiles(
        str(sandbox.cwd / "certs/ca.pem"), str(sandbox.home / "me.pem"), "/etc/me.key", "pa"
    )
    assert spec.http2
    assert warnings == ()


def test_a_client_certificate_may_be_one_file(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server({"url": URL, "client_cert": "me.pem"})
    assert spec is not None
    assert spec.tls == TlsFiles(client_cert=str(sandbox.cwd / "me.pem"))
    assert warnings == ()


@pytest.mark.parametrize("proxy", ["direct", "proxy:3128", "https://proxy", "http://[::1]:1"])
def test_a_proxy_that_can_be_used(sandbox: ConfigSandbox, proxy: str) -> None:
    spec, warnings = sandbox.load_server({"url": URL, "proxy": proxy})
    assert spec is not None
    assert spec.proxy == proxy
    assert warnings == ()


@pytest.mark.parametrize(
    "proxy", ["socks5://a:geheim@p:1", "http://a:geheim@", "http://a:geheim@p:x", "http://a b/"]
)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(
    sandbox: ConfigSandbox, proxy: str
) -> None:
    spec, (warning,) = sandbox.load_server({"url": URL, "proxy": proxy})
    assert spec is None
    assert "its proxy is not usable" in warning
    assert "geheim" not in warning


@pytest.mark.parametrize("wrong", [{}, {"key": "x"}, 5, {"cert": ""}, {"cert": "a\nb"}])
def test_a_client_certificate_that_is_none(sandbox: ConfigSandbox, wrong: object) -> None:
    spec, (warning,) = sandbox.load_server({"url": URL, "clientCert": wrong})
    assert spec is None
    assert "cert" in warning.lower()


@pytest.mark.parametrize("key", ["proxy", "caFile", "clientCert"])
def test_a_process_has_no_use_for_them(sandbox: ConfigSandbox, key: str) -> None:
    _, (warning,) = sandbox.load_server({"command": "x", key: "http://p"})
    assert f"{key!r} in server 'it' has no effect on a server with 'command'" in warning


@pytest.mark.parametrize("key", ["caFile", "clientCert", "http2"])
def test_a_plain_url_has_no_use_for_tls(sandbox: ConfigSandbox, key: str) -> None:
    _, (warning,) = sandbox.load_server({"url": "http://x/", key: "true"})
    assert f"{key!r} in server 'it' has no effect on a url with http" in warning
