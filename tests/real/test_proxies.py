"""URL servers behind a real proxy, with certificates of a private authority."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import SECONDS, modern, modern_call
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.network import NAME, Authority, Proxy, behind_tls, proxying
from testkit.upstreams import configuration, era_server
from testkit.waiting import wait_until

EXAMPLE_SERVER = {"builtin": "example"}
# The servers answer to names of loopback only.
HEADERS = {"Host": "localhost:80"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority that signed every certificate here."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Return a proxy that wants no password."""
    with proxying() as proxy:
        yield proxy


def tools(gateway: GatewayProcess) -> set[str]:
    listed = modern(gateway, "tools/list").json()["result"]["tools"]
    return {tool["name"] for tool in listed}


def environment(authority: Authority, **more: str) -> dict[str, str]:
    unset = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_DIR"), "")
    return unset | {"SSL_CERT_FILE": str(authority.file)} | more


def use(gateway: GatewayProcess, new: str) -> None:
    """Call the server, and hear on its stream that its tools have changed."""
    assert modern_call(gateway, "it_echo", {"text": "hello"})["structuredContent"] == {"echoed": "hello"}
    large = "x" * 3_000_000
    # Cut for the client, but it has come whole through the proxy.
    assert modern_call(gateway, "it_echo", {"text": large})["content"]
    modern_call(gateway, "it_grow", {"text": new})
    wait_until(lambda: f"it_{new}" in tools(gateway), SECONDS, "the new tool is listed")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_of_either_era_is_reached_through_the_proxy_of_the_environment(
    authority: Authority, proxy: Proxy, tmp_path: Path, era: str
) -> None:
    with (
        era_server(era, tmp_path / "journal") as plain,
        behind_tls(plain, authority.server_context()) as url,
        running_gateway(
            configuration({"it": {"url": url, "headers": HEADERS}}),
            tmp_path / "gateway",
            environment=environment(authority, HTTPS_PROXY=proxy.url.replace("//", "//ada:geheim@")),
        ) as gateway,
    ):
        gateway.wait_until_ready()
        use(gateway, "fresh")
        assert {host.rpartition(":")[0] for host in proxy.tunnels} == {NAME}
        assert "proxy-authorization: Basic YWRhOmdlaGVpbQ==\r\n" in proxy.heads[0]
        assert "geheim" not in gateway.log()


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_plain_server_is_reached_through_a_proxy_too_and_is_not_told_its_password(
    authority: Authority, proxy: Proxy, tmp_path: Path, era: str
) -> None:
    proxy.wants = "Basic YWRhOmdlaGVpbQ=="
    with (
        era_server(era, tmp_path / "journal") as url,
        running_gateway(
            configuration(
                {"it": {"url": url, "headers": HEADERS, "proxy": proxy.url.replace("//", "//ada:geheim@")}}
            ),
            tmp_path / "gateway",
            environment=environment(authority, NO_PROXY="*"),
        ) as gateway,
    ):
        gateway.wait_until_ready()
        use(gateway, "fresh")
        assert proxy.heads[0].startswith(f"POST {url} HTTP/1.1\r\n")
        assert proxy.tunnels == []


def inner_config(*names: str) -> dict[str, Any]:
    """A gateway that is itself the server, under the name that the outer one gives it."""
    return configuration(dict.fromkeys(names, EXAMPLE_SERVER), allowedHosts=[HEADERS["Host"]])


def test_an_sse_server_is_reached_through_a_proxy_that_itself_speaks_tls(
    authority: Authority, tmp_path: Path
) -> None:
    with (
        proxying(authority.server_context()) as proxy,
        running_gateway(inner_config("example"), tmp_path / "inner") as inner,
        behind_tls(inner.sse_url, authority.server_context()) as url,
        running_gateway(
            configuration(
                {"it": {"url": url, "headers": HEADERS, "proxy": proxy.url, "caFile": str(authority.file)}}
            ),
            tmp_path / "gateway",
            environment=environment(authority, SSL_CERT_FILE="/nowhere"),
        ) as gateway,
    ):
        gateway.wait_until_ready()
        before = tools(gateway)
        inner.write_config(inner_config("example", "second"))
        wait_until(
            lambda: any("second" in tool for tool in tools(gateway) - before), SECONDS, "the new tools"
        )
        assert {host.rpartition(":")[0] for host in proxy.tunnels} == {NAME}


@pytest.mark.parametrize(
    ("key", "value"), [("NO_PROXY", "127.0.0.0/8"), ("no_proxy", "example.com, 127.0.0.1"), ("NO_PROXY", "*")]
)
def test_no_proxy_is_honoured(
    authority: Authority, proxy: Proxy, tmp_path: Path, key: str, value: str
) -> None:
    with era_server("modern", tmp_path / "journal") as url:
        settings = environment(authority, HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url, **{key: value})
        with running_gateway(
            configuration({"it": {"url": url, "headers": HEADERS}}),
            tmp_path / "gateway",
            environment=settings,
        ) as gateway:
            gateway.wait_until_ready()
            assert proxy.heads == []


def test_direct_wins_over_the_environment(authority: Authority, proxy: Proxy, tmp_path: Path) -> None:
    with era_server("modern", tmp_path / "journal") as url:
        entry = {"url": url, "proxy": "direct"}
        settings = environment(authority, ALL_PROXY=proxy.url)
        with running_gateway(
            configuration({"it": entry}), tmp_path / "gateway", environment=settings
        ) as gateway:
            gateway.wait_until_ready()
            assert proxy.heads == []


def failure(gateway: GatewayProcess) -> str:
    wait_until(lambda: "last_error" in gateway.servers()["it"], SECONDS, "it has failed")
    said: str = gateway.servers()["it"]["last_error"]
    return said


@pytest.mark.parametrize(
    ("status", "url", "sentence"),
    [
        ("407 No", f"https://{NAME}:1/mcp", f"wants a user and a password for {NAME}:1 (HTTP 407)"),
        ("502 Bad Gateway", f"https://{NAME}:1/mcp", f"did not connect to {NAME}:1 (HTTP 502)"),
        ("403 Forbidden", f"https://{NAME}:1/mcp", f"did not connect to {NAME}:1 (HTTP 403)"),
        ("407 No", f"http://{NAME}:1/mcp", f"wants a user and a password for {NAME}:1 (HTTP 407)"),
        ("502 Bad Gateway", f"http://{NAME}:1/mcp", "answered with HTTP 502 through the proxy"),
        ("502 Bad Gateway", f"http://{NAME}:1/sse", "answered with HTTP 502 through the proxy"),
    ],
)
def test_a_proxy_that_refuses_is_named(
    authority: Authority, proxy: Proxy, tmp_path: Path, status: str, url: str, sentence: str
) -> None:
    proxy.refuses_with = status
    settings = environment(authority, ALL_PROXY=proxy.url)
    with running_gateway(
        configuration({"it": {"url": url, "headers": HEADERS}}), tmp_path / "gateway", environment=settings
    ) as gateway:
        said = failure(gateway)
        assert sentence in said
        assert f"the proxy {proxy.url}" in said


@pytest.mark.parametrize(
    ("entry", "more", "sentence"),
    [
        (
            {},
            {"HTTPS_PROXY": "http://ada:geheim@127.0.0.1:1"},
            "the proxy http://127.0.0.1:1 could not be reached",
        ),
        (
            {},
            {"ALL_PROXY": "socks5://ada:geheim@127.0.0.1:1"},
            "the proxy in ALL_PROXY is not usable, socks5",
        ),
        ({"caFile": "nowhere.pem", "proxy": "direct"}, {}, "nowhere.pem cannot be used (No such file"),
        ({"clientCert": "nowhere.pem", "proxy": "direct"}, {}, "clientCert cannot be used (No such file"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_passwords(
    authority: Authority, tmp_path: Path, entry: dict[str, Any], more: dict[str, str], sentence: str
) -> None:
    config = configuration({"it": {"url": f"https://{NAME}/mcp"} | entry})
    with running_gateway(config, tmp_path / "gateway", environment=environment(authority, **more)) as gateway:
        assert sentence in failure(gateway)
        assert "geheim" not in gateway.log()


def test_a_server_of_an_unknown_authority_is_refused_with_the_way_out(
    authority: Authority, proxy: Proxy, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger")
    with (
        era_server("modern", tmp_path / "journal") as plain,
        behind_tls(plain, stranger.server_context()) as url,
        running_gateway(
            configuration({"it": {"url": url, "headers": HEADERS, "proxy": proxy.url}}),
            tmp_path / "gateway",
            environment=environment(authority),
        ) as gateway,
    ):
        said = failure(gateway)
        assert "certificate is not accepted" in said
        assert "caFile" in said
        gateway.write_config(
            configuration(
                {"it": {"url": url, "headers": HEADERS, "proxy": proxy.url, "caFile": str(stranger.file)}}
            )
        )
        gateway.wait_until_ready()


@pytest.mark.parametrize("form", ["one file", "two files", "with a password"])
def test_a_server_that_wants_a_client_certificate_is_shown_one(
    authority: Authority, proxy: Proxy, tmp_path: Path, form: str
) -> None:
    password = "s3cret" if form == "with a password" else ""
    cert, key = authority.sign("gateway", password.encode())
    shown: Any = {"cert": str(cert), "key": str(key)} | ({"password": password} if password else {})
    if form == "one file":
        shown = str(tmp_path / "both.pem")
        Path(shown).write_bytes(cert.read_bytes() + key.read_bytes())
    with (
        era_server("modern", tmp_path / "journal") as plain,
        behind_tls(plain, authority.server_context(wants_client=True)) as url,
        running_gateway(
            configuration({"it": {"url": url, "headers": HEADERS}}),
            tmp_path / "gateway",
            environment=environment(authority, HTTPS_PROXY=proxy.url),
        ) as gateway,
    ):
        assert failure(gateway)
        gateway.write_config(configuration({"it": {"url": url, "headers": HEADERS, "clientCert": shown}}))
        gateway.wait_until_ready()
        use(gateway, "fresh")
