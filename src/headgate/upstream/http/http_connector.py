"""Opens connections to one origin: directly or through a proxy, with TLS where its URL requires it."""

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast
from urllib.parse import urlsplit

from headgate.domain.http_proxy import HttpProxy, host_literal
from headgate.domain.regular_file import (
    NotRegularFile,
    check_certificate_directory,
    check_regular,
    unusable_certificates,
)
from headgate.domain.server_spec import DEFAULT_TLS, TlsFiles
from headgate.upstream.errors import system_error_reason

P = TypeVar("P", bound=asyncio.Protocol)

_MOST_HEADER_BYTES = 64 * 1024
_OTHER_HOST = ": write a host name of its certificate into its url, or give it a certificate for this one"
_TOO_OLD = ": it does not speak TLS 1.2 or newer; update the server"
# By the error codes of OpenSSL (x509_vfy.h); other codes concern the certificate authority.
_ADVICE_BY_CODE = {
    9: ": check the clocks of this machine and of the server",
    10: ": renew the certificate of the server; if it is still valid, check the clock of this machine",
    62: _OTHER_HOST,
    64: _OTHER_HOST,
}
_ADVICE_BY_REASON = {
    "TLSV1_ALERT_PROTOCOL_VERSION": _TOO_OLD,
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "WRONG_VERSION_NUMBER": ": it does not speak TLS; if it is a plain HTTP server, write http:// in its url",
}


# Lookups of different names at the same time, one thread each; the system ends each after the timeouts
# of resolv.conf.
MOST_LOOKUPS = 64
_Lookup = asyncio.Future[list[str]]


def addresses_of(host: str) -> list[str]:
    """The addresses of a host, the preferred one first; blocks, and raises OSError or UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_address(sockaddr) for *_, sockaddr in found))


class HostResolver:
    """Resolves host names; one lookup of a name serves all callers that wait for it.

    Each lookup has a thread of its own: `loop.getaddrinfo` uses four threads of libuv on uvloop, and the
    default thread pool on asyncio, so a few lookups that hang would delay all other names, on asyncio all
    work off the loop, and on both the end of the gateway.
    """

    def __init__(self, look_up: Callable[[str], list[str]] = addresses_of) -> None:
        self._look_up = look_up
        self._lookups: dict[str, _Lookup] = {}

    async def resolve(self, host: str) -> list[str]:
        """The addresses, the preferred one first; raises OSError or UnicodeError. It has no timeout."""
        with suppress(ValueError):
            ipaddress.ip_address(host)
            return [host]
        lookup = self._lookups.get(host)
        if lookup is None:
            if len(self._lookups) >= MOST_LOOKUPS:
                raise OSError(f"{MOST_LOOKUPS} lookups of other host names hang; check the name server")
            lookup = self._start(host)
        # A caller that gives up leaves the lookup to the others.
        return await asyncio.shield(lookup)

    def _start(self, host: str) -> _Lookup:
        loop = asyncio.get_running_loop()
        lookup: _Lookup = loop.create_future()
        # A daemon: the gateway ends without waiting for a name server.
        thread = threading.Thread(target=self._run, args=(host, loop, lookup), name="resolver", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(f"no thread to resolve the host name {host} ({error}); raise the limit") from error
        self._lookups[host] = lookup
        lookup.add_done_callback(partial(self._forget, host))
        return lookup

    def _run(self, host: str, loop: asyncio.AbstractEventLoop, lookup: _Lookup) -> None:
        try:
            deliver = partial(lookup.set_result, self._look_up(host))
        except OSError as error:
            reason = f"the host name {host} could not be resolved ({error.strerror or error})"
            deliver = partial(lookup.set_exception, OSError(error.errno, reason))
        except UnicodeError as error:
            deliver = partial(lookup.set_exception, error)
        # The event loop may have ended, and the lookup with it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if lookup.done() else deliver())

    def _forget(self, host: str, lookup: _Lookup) -> None:
        del self._lookups[host]
        if not lookup.cancelled():
            # All callers may have given up.
            lookup.exception()


def _address(sockaddr: tuple[object, ...]) -> str:
    """The address; a link-local one has the number of its interface."""
    scope = sockaddr[3] if len(sockaddr) == 4 else 0
    return f"{sockaddr[0]}%{scope}" if scope else str(sockaddr[0])


class ConnectFailed(Exception):
    """The server could not be reached; nothing was sent."""


class Origin:
    """The origin and target of a URL, parsed once."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = host_literal(self.host)
        default = self.port == (443 if self.secure else 80)
        self.authority = host if default else f"{host}:{self.port}"

    def same_as(self, url: str) -> bool:
        other = Origin(url)
        return (other.secure, other.host, other.port) == (self.secure, self.host, self.port)


@dataclass(eq=False)
class OriginConnector:
    """Connects to one origin; each `connect` opens a connection of its own."""

    origin: Origin
    connect_timeout_seconds: float
    proxy: HttpProxy | None = None
    tls: TlsFiles = DEFAULT_TLS
    # Offered to the server by ALPN, the preferred one first.
    protocols: tuple[str, ...] = ()
    resolver: HostResolver = field(default_factory=HostResolver)
    _contexts: dict[str, ssl.SSLContext] = field(default_factory=dict, init=False)

    async def connect(self, make: Callable[[], P]) -> P:
        """A protocol on an open connection; raises ConnectFailed."""
        try:
            async with asyncio.timeout(self.connect_timeout_seconds):
                if self.proxy is not None:
                    return await self._open_through(self.proxy, make)
                context = await self._server_context() if self.origin.secure else None
                return await self._connect_to(make, self.origin.host, self.origin.port, context)
        except TimeoutError as error:
            through = f" through the proxy {self.proxy}" if self.proxy else ""
            seconds = f"{self.connect_timeout_seconds:g} s"
            raise ConnectFailed(f"no connection within {seconds}{through}") from error
        except ssl.SSLError as error:
            reason = f"TLS failed ({_connect_error_reason(error)}){self._advice(error)}"
            raise ConnectFailed(reason) from error
        except OSError as error:
            raise ConnectFailed(_connect_error_reason(error)) from error
        except UnicodeError as error:
            raise ConnectFailed("its name is no name of a host") from error

    async def _connect_to(
        self, make: Callable[[], P], host: str, port: int, context: ssl.SSLContext | None
    ) -> P:
        """A connection to the first address of the host that accepts one; raises OSError."""
        loop, failures = asyncio.get_running_loop(), list[str]()
        name = host if context else None
        for address in await self.resolver.resolve(host):
            try:
                # An address is not resolved again, so the connection goes to the address that was checked.
                _, protocol = await loop.create_connection(
                    make, address, port, ssl=context, server_hostname=name
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failures.append(_connect_error_reason(error))
            else:
                return protocol
        raise OSError(", ".join(failures))

    async def _open_through(self, proxy: HttpProxy, make: Callable[[], P]) -> P:
        if not self.origin.secure:
            # The proxy reads the request and passes it on.
            return await self._connect_to_proxy(proxy, make)
        context = await self._server_context()
        host = self.origin.host if self.origin.host.isascii() else self.origin.host.encode("idna").decode()
        authority = f"{host_literal(host)}:{self.origin.port}"
        tunnel = await self._connect_to_proxy(proxy, lambda: _ProxyTunnel(proxy, authority))
        transport: asyncio.Transport | None = tunnel.transport
        try:
            await tunnel.opened
            protocol = make()
            transport = await asyncio.get_running_loop().start_tls(
                tunnel.transport, protocol, context, server_hostname=self.origin.host
            )
        except BaseException:
            tunnel.transport.abort()
            raise
        if transport is None:
            raise ConnectFailed("the connection ended while TLS began")
        protocol.connection_made(transport)
        return protocol

    async def _connect_to_proxy(self, proxy: HttpProxy, make: Callable[[], P]) -> P:
        context = await self._context("proxy", lambda: proxy_context(self.tls)) if proxy.secure else None
        try:
            return await self._connect_to(make, proxy.host, proxy.port, context)
        except OSError as error:
            is_tls, what = isinstance(error, ssl.SSLError), f"the proxy {proxy} could not be reached"
            what = f"TLS with the proxy {proxy} failed" if is_tls else what
            raise ConnectFailed(f"{what} ({_connect_error_reason(error)})") from error

    async def _server_context(self) -> ssl.SSLContext:
        return await self._context("server", lambda: server_context(self.tls, self.protocols))

    async def _context(self, of: str, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        if of not in self._contexts:
            # Reading the certificates of a system takes tens of milliseconds.
            self._contexts[of] = await asyncio.to_thread(make)
        return self._contexts[of]

    def _advice(self, error: ssl.SSLError) -> str:
        if not isinstance(error, ssl.SSLCertVerificationError):
            return _ADVICE_BY_REASON.get(error.reason or "", "")
        if error.verify_code in _ADVICE_BY_CODE:
            return _ADVICE_BY_CODE[error.verify_code]
        if self.tls.ca_file:
            return ": caFile has no authority that signed its certificate; add that authority to the file"
        return ": if it has a certificate of your own authority, name that in caFile or SSL_CERT_FILE"


class _ProxyTunnel(asyncio.Protocol):
    """Requests a tunnel to the server from a proxy; `opened` is done when it is open."""

    def __init__(self, proxy: HttpProxy, authority: str) -> None:
        self._proxy = proxy
        self._authority = authority
        self._head = bytearray()
        self.transport: asyncio.Transport
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        lines = [f"CONNECT {self._authority} HTTP/1.1", f"host: {self._authority}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        self.transport.write("\r\n".join((*lines, "", "")).encode())

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if self.opened.done():
            return
        if end:
            line = head.split(b"\r\n", 1)[0].decode("latin-1")
            version, _, said = line.partition(" ")
            status = said[:3]
            if not version.startswith("HTTP/1.") or not status.isdigit():
                self._fail(f"the proxy {self._proxy} does not speak HTTP")
            elif status[0] != "2":
                self._fail(proxy_refusal(self._proxy, int(status), self._authority))
            elif rest:
                # In TLS the server never sends first.
                self._fail(f"the proxy {self._proxy} sent something that was not asked for")
            else:
                self.opened.set_result(None)
        elif len(self._head) > _MOST_HEADER_BYTES:
            self._fail(f"the proxy {self._proxy} answered with headers that are too large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the proxy {self._proxy} ended the connection before it reached {self._authority}")

    def _fail(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectFailed(reason))
            # A cancelled connect does not retrieve the error.
            self.opened.exception()


def proxy_refusal(proxy: HttpProxy, status: int, authority: str) -> str:
    if status != 407:
        return f"the proxy {proxy} did not connect to {authority} (HTTP {status})"
    what = "refused its user and password" if proxy.authorization else "wants a user and a password"
    return f"the proxy {proxy} {what} for {authority} (HTTP 407): write them into its URL"


def server_context(files: TlsFiles, protocols: tuple[str, ...] = ()) -> ssl.SSLContext:
    """The TLS context for a server: trusted authorities and client certificate; raises ConnectFailed."""
    # Without `caFile` that is the system's store, for which SSL_CERT_FILE and SSL_CERT_DIR may stand.
    context = _context_trusting(files.ca_file, alone=True)
    if files.client_cert:
        try:
            for file in filter(None, (files.client_cert, files.client_key)):
                check_regular(file)
            # Without a password given here OpenSSL would prompt for one on the terminal.
            key, password = files.client_key or None, files.client_key_password
            context.load_cert_chain(files.client_cert, key, lambda: password)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"its clientCert cannot be used ({_connect_error_reason(error)})") from error
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def proxy_context(files: TlsFiles) -> ssl.SSLContext:
    """The TLS context for a proxy: it trusts the system's store and `caFile`."""
    return _context_trusting(files.ca_file, alone=False)


def _context_trusting(ca_file: str, *, alone: bool) -> ssl.SSLContext:
    if not ca_file:
        return _trusting_system()
    file, directory = (None, ca_file) if os.path.isdir(ca_file) else (ca_file, None)
    try:
        if file is not None:
            check_regular(file)
        else:
            check_certificate_directory(ca_file)
        if alone:
            return ssl.create_default_context(cafile=file, capath=directory)
        context = _trusting_system()
        context.load_verify_locations(file, directory)
    except OSError as error:
        named = error.filename if isinstance(error, NotRegularFile) else ca_file
        raise ConnectFailed(f"its caFile {named} cannot be used ({_connect_error_reason(error)})") from error
    return context


def _trusting_system() -> ssl.SSLContext:
    if unusable := unusable_certificates():
        raise ConnectFailed(unusable)
    return ssl.create_default_context()


def _connect_error_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted, {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    # asyncio gives no message for a connection that ends during the TLS handshake.
    said = getattr(error, "strerror", None) or str(error)
    return system_error_reason(error, said or "the connection ended before it was ready")
