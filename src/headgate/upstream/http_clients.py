"""Chooses the HTTP client of a server, and the way that it takes."""

import importlib
import os
from typing import Protocol

from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.http_proxy import DIRECT, HttpProxy, ProxyUnusable, proxy_in, read_proxy
from headgate.domain.server import ServerSpec
from headgate.upstream.http_client import HttpClient, Response
from headgate.upstream.http_connector import Connector, Origin
from headgate.upstream.link import Sending
from headgate.upstream.resolver import Resolver


class Client(Protocol):
    """Sends requests to one origin, in whichever version of HTTP."""

    origin: Origin
    # The proxy that reads each request, where there is one.
    reading_proxy: HttpProxy | None

    async def send(
        self, method: str, target: str, headers: bytes, body: bytes, sending: Sending | None = None
    ) -> Response:
        """Send a request whose extra header lines are `headers`; raises NotConnected or Dropped."""

    def close(self) -> None:
        """End every connection."""


def client_for(spec: ServerSpec, host: str, resolver: Resolver | None = None) -> Client:
    """The client of a server, which requests call `host`; raises UpstreamUnreachable."""
    origin = Origin(spec.url)
    proxy, seconds = _proxy_of(spec, origin), spec.connect_timeout_seconds
    client = HttpClient(Connector(origin, seconds, proxy, spec.tls, resolver=resolver), host)
    if not spec.http2 or not origin.secure:
        return client
    try:
        # Chosen at run time: most installations have no need of it.
        http2 = importlib.import_module("headgate.upstream.http2_client")
    except ModuleNotFoundError as missing:
        reason = f'its http2 needs the package {missing.name!r}: pip install "headgate[http2]"'
        raise UpstreamUnreachable(spec.name, reason) from missing
    chosen: Client = http2.Http2Client(
        Connector(origin, seconds, proxy, spec.tls, http2.PROTOCOLS, resolver), client, host
    )
    return chosen


def _proxy_of(spec: ServerSpec, origin: Origin) -> HttpProxy | None:
    where, url = "its proxy", spec.proxy
    if not url:
        where, url = proxy_in(os.environ, origin.host, origin.port, secure=origin.secure)
    if not url or url == DIRECT:
        return None
    try:
        return read_proxy(url)
    except ProxyUnusable as error:
        advice = "write http://host:port, add the server to NO_PROXY, or give it the proxy direct"
        raise UpstreamUnreachable(
            spec.name, f"the proxy in {where} is not usable, {error}: {advice}"
        ) from error


def answered(status: int, proxy: HttpProxy | None) -> str:
    """What an HTTP error says of a server; from 502 on it may be the proxy that speaks."""
    through = f" through the proxy {proxy}" if proxy is not None and status in (502, 503, 504) else ""
    return f"it answered with HTTP {status}{through}"
