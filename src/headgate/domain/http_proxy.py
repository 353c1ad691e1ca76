"""Which HTTP proxy a request goes through: the one of its server, or the one of the environment."""

import base64
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

# No proxy for this server, whatever the environment has.
DIRECT = "direct"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_UNUSABLE = re.compile(r"[\x00-\x20\x7f]")


class InvalidProxy(ValueError):
    """A proxy's URL that cannot be used; the sentence holds neither user nor password."""


class HttpProxy(msgspec.Struct, frozen=True):
    """A proxy, taken apart once."""

    host: str
    port: int
    # Whether the connection to the proxy itself is encrypted.
    secure: bool = False
    # The value of Proxy-Authorization; empty without user and password.
    authorization: str = ""

    def __str__(self) -> str:
        """Where it is, without user and password."""
        return f"{'https' if self.secure else 'http'}://{host_literal(self.host)}:{self.port}"


def host_literal(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def parse_proxy(url: str) -> HttpProxy:
    """The proxy of a URL such as `http://user:password@host:3128` or `host:3128`; raises ProxyUnusable."""
    text = url.strip()
    if _UNUSABLE.search(text):
        raise InvalidProxy("it has a space or a control character")
    try:
        parts = urlsplit(text if _SCHEME.match(text) else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise InvalidProxy("its host or port cannot be read") from error
    if parts.scheme not in ("http", "https"):
        raise InvalidProxy(f"{parts.scheme} is not a kind of proxy that the gateway uses")
    if not parts.hostname or port == 0:
        raise InvalidProxy("it has no host, or a port that cannot be")
    secure, authorization = parts.scheme == "https", ""
    if parts.username is not None or parts.password is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return HttpProxy(parts.hostname, port or (443 if secure else 80), secure, authorization)


def proxy_from_environment(
    environ: Mapping[str, str], host: str, port: int, *, secure: bool
) -> tuple[str, str]:
    """The variable that names the proxy for a host, and its value; both empty where there is none.

    As curl and requests read them: lower case wins, ALL_PROXY stands in for the other two.
    """
    for name in ("HTTPS_PROXY" if secure else "HTTP_PROXY", "ALL_PROXY"):
        for spelling in (name.lower(), name):
            value = environ.get(spelling, "").strip()
            if value:
                bypassed = is_bypassed(host, port, environ.get("no_proxy") or environ.get("NO_PROXY", ""))
                return ("", "") if bypassed or _is_loopback_beyond_proxy(host, value) else (spelling, value)
    return "", ""


def is_bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY has the host: itself, a domain above it, an address range, or `*`."""
    name = host.lower().rstrip(".")
    return any(
        _no_proxy_matches(entry, name, port) for entry in re.split(r"[,\s]+", no_proxy.lower()) if entry
    )


def _no_proxy_matches(entry: str, name: str, port: int) -> bool:
    if entry == "*":
        return True
    pattern, only_port = _without_port(entry)
    if only_port is not None and only_port != port:
        return False
    address = _address(name)
    if address is not None:
        return address in _network(pattern)
    # `example.com`, `.example.com` and `*.example.com` are all the domain with everything below it.
    domain = pattern.removeprefix("*").strip(".")
    return bool(domain) and (name == domain or name.endswith(f".{domain}"))


def _without_port(entry: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?", entry)
    if match is None:
        # An IPv6 address without brackets.
        return entry, None
    host, port = match.groups()
    return host.strip("[]"), int(port) if port else None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | tuple[()]:
    try:
        return ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return ()


def _is_loopback_beyond_proxy(host: str, proxy: str) -> bool:
    """Whether only this machine reaches the host: for a proxy elsewhere, loopback is its own."""
    try:
        elsewhere = not _is_loopback(parse_proxy(proxy).host)
    except InvalidProxy:
        elsewhere = True
    return elsewhere and _is_loopback(host)


def _is_loopback(host: str) -> bool:
    name = host.lower().rstrip(".")
    address = _address(name)
    return address.is_loopback if address is not None else name == "localhost" or name.endswith(".localhost")
