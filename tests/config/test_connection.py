"""The keys of a URL server that say how it is reached."""

import pytest

from headgate.domain.server import TlsFiles
from tests.config.place import Place

URL = "https://mcp.example.com/mcp"


def test_proxy_certificates_and_version_are_read(place: Place) -> None:
    entry = {
        "url": URL,
        "proxy": "http://ada:${PW}@proxy:3128",
        "caFile": "certs/ca.pem",
        "clientCert": {"cert": "~/me.pem", "key": "/etc/me.key", "password": "${PW}"},
        "http2": True,
    }
    spec, warnings = place.load_server(entry, PW="pa")
    assert spec is not None
    assert spec.proxy == "http://ada:pa@proxy:3128"
    assert spec.tls == TlsFiles(
        str(place.cwd / "certs/ca.pem"), str(place.home / "me.pem"), "/etc/me.key", "pa"
    )
    assert spec.http2
    assert warnings == ()


def test_a_client_certificate_may_be_one_file(place: Place) -> None:
    spec, warnings = place.load_server({"url": URL, "client_cert": "me.pem"})
    assert spec is not None
    assert spec.tls == TlsFiles(client_cert=str(place.cwd / "me.pem"))
    assert warnings == ()


@pytest.mark.parametrize("proxy", ["direct", "proxy:3128", "https://proxy", "http://[::1]:1"])
def test_a_proxy_that_can_be_used(place: Place, proxy: str) -> None:
    spec, warnings = place.load_server({"url": URL, "proxy": proxy})
    assert spec is not None
    assert spec.proxy == proxy
    assert warnings == ()


@pytest.mark.parametrize(
    "proxy", ["socks5://a:geheim@p:1", "http://a:geheim@", "http://a:geheim@p:x", "http://a b/"]
)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(place: Place, proxy: str) -> None:
    spec, (warning,) = place.load_server({"url": URL, "proxy": proxy})
    assert spec is None
    assert "its proxy is not usable" in warning
    assert "geheim" not in warning


@pytest.mark.parametrize("wrong", [{}, {"key": "x"}, 5, {"cert": ""}, {"cert": "a\nb"}])
def test_a_client_certificate_that_is_none(place: Place, wrong: object) -> None:
    spec, (warning,) = place.load_server({"url": URL, "clientCert": wrong})
    assert spec is None
    assert "cert" in warning.lower()


@pytest.mark.parametrize("key", ["proxy", "caFile", "clientCert"])
def test_a_process_has_no_use_for_them(place: Place, key: str) -> None:
    _, (warning,) = place.load_server({"command": "x", key: "http://p"})
    assert f"{key!r} in server 'it' has no effect on a server with 'command'" in warning


@pytest.mark.parametrize("key", ["caFile", "clientCert", "http2"])
def test_a_plain_url_has_no_use_for_tls(place: Place, key: str) -> None:
    _, (warning,) = place.load_server({"url": "http://x/", key: "true"})
    assert f"{key!r} in server 'it' has no effect on a url with http" in warning
