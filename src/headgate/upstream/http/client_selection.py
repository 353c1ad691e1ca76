"""Selects the HTTP client, proxy and configured headers of one server."""

import os
from typing import Protocol

from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.http_proxy import DIRECT, HttpProxy, InvalidProxy, parse_proxy, proxy_from_environment
from headgate.domain.server_spec import ServerSpec
from headgate.upstream.http.http1_client import Http1Client, HttpClientResponse
from headgate.upstream.http.http_connector import HostResolver, Origin, OriginConnector
from headgate.upstream.transport import SendAttempt


class UpstreamHttpClient(Protocol):
    """Sends requests to one origin, in one version of HTTP."""

    origin: Origin
    # The proxy that reads each request, if there is one.
    reading_proxy: HttpProxy | None

    async def send_http(
        self, method: str, target: str, headers: bytes, body: bytes, sending: SendAttempt | None = None
    ) -> HttpClientResponse:
        """Send a request with extra header lines; raises ConnectFailed or ConnectionDropped."""

    def close(self) -> None:
        """Close every connection."""


def client_for(spec: ServerSpec, host: str, resolver: HostResolver | None = None) -> UpstreamHttpClient:
    """The client of a server, with `host` as its Host header if given; raises UpstreamUnreachable."""
    origin = Origin(spec.url)
    resolver = resolver or HostResolver()
    proxy, seconds = _proxy_of(spec, origin), spec.connect_timeout_seconds
    client = Http1Client(OriginConnector(origin, seconds, proxy, spec.tls, resolver=resolver), host)
    if not spec.http2 or not origin.secure:
        return client
    try:
        # An optional dependency, imported only where it is configured.
        from headgate.upstream.http import http2_client
    except ModuleNotFoundError as missing:
        reason = f'its http2 needs the package {missing.name!r}: pip install "headgate-mcp[http2]"'
        raise UpstreamUnreachable(spec.name, reason) from missing
    connector = OriginConnector(origin, seconds, proxy, spec.tls, http2_client.PROTOCOLS, resolver)
    return http2_client.Http2Client(connector, client, host)


def _proxy_of(spec: ServerSpec, origin: Origin) -> HttpProxy | None:
    where, url = "its proxy", spec.proxy
    if not url:
        where, url = proxy_from_environment(os.environ, origin.host, origin.port, secure=origin.secure)
    if not url or url == DIRECT:
        return None
    try:
        return parse_proxy(url)
    except InvalidProxy as error:
        advice = "write http://host:port, add the server to NO_PROXY, or give it the proxy direct"
        reason = f"the proxy in {where} is not usable, {error}: {advice}"
        raise UpstreamUnreachable(spec.name, reason) from error


def http_error_reason(status: int, proxy: HttpProxy | None) -> str:
    """The reason of an HTTP error; a proxy sends 502, 503 and 504, too."""
    through = f" through the proxy {proxy}" if proxy is not None and status in (502, 503, 504) else ""
    return f"it answered with HTTP {status}{through}"


def configured_header_lines(headers: dict[str, str]) -> bytes:
    """The configured headers as lines without the host; a line break in a value starts no new line."""
    others = ((name, value) for name, value in headers.items() if name.strip().lower() != "host")
    lines = (_one_line(f"{name.strip()}: {value.strip()}") for name, value in others)
    return b"".join(line.encode() + b"\r\n" for line in lines)


def configured_host(headers: dict[str, str]) -> str:
    """The configured Host header; empty for the name in the URL."""
    hosts = (value.strip() for name, value in headers.items() if name.strip().lower() == "host")
    return _one_line(next(hosts, ""))


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
