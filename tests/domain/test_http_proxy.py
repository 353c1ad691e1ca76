"""Which proxy a request goes through."""

import pytest

from headgate.domain.http_proxy import (
    HttpProxy,
    InvalidProxy,
    is_bypassed,
    parse_proxy,
    proxy_from_environment,
)

PROXY = "http://proxy.example.net:3128"


@pytest.mark.parametrize(
    ("url", "proxy", "shown"),
    [
        ("http://p:3128", HttpProxy("p", 3128), "http://p:3128"),
        ("p:3128", HttpProxy("p", 3128), "http://p:3128"),
        ("p", HttpProxy("p", 80), "http://p:80"),
        ("HTTPS://P/", HttpProxy("p", 443, secure=True), "https://p:443"),
        ("http://[::1]:8080", HttpProxy("::1", 8080), "http://[::1]:8080"),
        ("http://ada:p%40ss@p:1", HttpProxy("p", 1, authorization="Basic YWRhOnBAc3M="), "http://p:1"),
        ("ada:pa@p:1", HttpProxy("p", 1, authorization="Basic YWRhOnBh"), "http://p:1"),
        ("http://ada@p:1", HttpProxy("p", 1, authorization="Basic YWRhOg=="), "http://p:1"),
    ],
)
def test_a_proxy_is_read_and_shown_without_its_password(url: str, proxy: HttpProxy, shown: str) -> None:
    assert parse_proxy(url) == proxy
    assert str(proxy) == shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http://ada:geheim@",
        "socks5://ada:geheim@p:1",
        "http://p:99999",
        "http://p:x",
        "http://p:0",
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidProxy) as caught:
        parse_proxy(url)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "secure", "variable"),
    [
        ({"HTTPS_PROXY": PROXY}, True, "HTTPS_PROXY"),
        ({"HTTPS_PROXY": PROXY}, False, ""),
        ({"HTTP_PROXY": PROXY}, False, "HTTP_PROXY"),
        ({"HTTP_PROXY": PROXY}, True, ""),
        ({"HTTPS_PROXY": "http://other:1", "https_proxy": PROXY}, True, "https_proxy"),
        ({"HTTPS_PROXY": "", "ALL_PROXY": PROXY}, True, "ALL_PROXY"),
        ({"ALL_PROXY": "http://other:1", "HTTP_PROXY": PROXY}, False, "HTTP_PROXY"),
        ({"all_proxy": PROXY, "no_proxy": "", "NO_PROXY": "example.com"}, True, ""),
        ({"https_proxy": PROXY, "NO_PROXY": "elsewhere.com"}, True, "https_proxy"),
        ({}, True, ""),
    ],
)
def test_the_environment_names_a_proxy(environ: dict[str, str], *, secure: bool, variable: str) -> None:
    value = PROXY if variable else ""
    assert proxy_from_environment(environ, "mcp.example.com", 443, secure=secure) == (variable, value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "a.localhost", "::1", "127.8.8.8"])
def test_a_proxy_elsewhere_is_not_asked_for_loopback_and_one_on_loopback_is(host: str) -> None:
    assert proxy_from_environment({"ALL_PROXY": PROXY}, host, 80, secure=False) == ("", "")
    for near in ("http://127.0.0.1:1", "localhost:1", "http://[::1]:1"):
        assert proxy_from_environment({"ALL_PROXY": near}, host, 80, secure=False) == ("ALL_PROXY", near)


@pytest.mark.parametrize(
    ("no_proxy", "host", "bypassed"),
    [
        ("*", "anything.example", True),
        ("example.com", "example.com", True),
        ("example.com", "mcp.example.com", True),
        ("example.com", "notexample.com", False),
        ("example.com", "example.com.evil.net", False),
        (".example.com", "mcp.example.com", True),
        (".example.com", "example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("EXAMPLE.com", "Mcp.Example.COM.", True),
        ("a.com, example.com", "example.com", True),
        ("a.com example.com", "example.com", True),
        (",, ,", "example.com", False),
        (".", "example.com", False),
        ("", "example.com", False),
        ("example.com:8443", "example.com", True),
        ("example.com:443", "example.com", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8:8443", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:443", "10.1.2.3", False),
        ("0.1.2.3", "10.1.2.3", False),
        ("fd00::/8", "fd00::1", True),
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("[::1]:8443", "::1", True),
        ("[::1]:443", "::1", False),
        ("not/an/address", "10.1.2.3", False),
        ("10.0.0.0/8", "ten.example.com", False),
    ],
)
def test_no_proxy(no_proxy: str, host: str, *, bypassed: bool) -> None:
    assert is_bypassed(host, 8443, no_proxy) is bypassed
