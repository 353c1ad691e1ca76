"""Who may speak to the gateway over HTTP at all: decided by Host, Origin and Sec-Fetch-Site."""

from collections.abc import Iterable, Mapping

from headgate.front.paths import MCP, MESSAGES, SSE

# Browsers say with each request which page made it; a GET of another page has no Origin where the page does
# not read the answer, as with an image or a link. Command-line clients send no such header.
_OWN_SITES = frozenset({b"same-origin", b"none"})
_OTHER_PAGE = (
    "a page of another site may not call without an Origin; add its origin to proxySettings.allowedOrigins"
)
# A link there would open a stream.
_ENDPOINTS = (MCP.encode(), SSE.encode(), MESSAGES.encode())


class Refused(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Guard:
    """Knows the names under which this gateway is reached."""

    def __init__(self, host: str, port: int, hosts: Iterable[str], origins: Iterable[str]) -> None:
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
        local = [f"{name}:{port}" for name in names]
        if port == 80:
            local += names
        allowed = [*local, *hosts]
        self._hosts = {host.lower().encode() for host in allowed}
        self._origins = {f"http://{host}".lower().encode() for host in allowed}
        self._origins |= {f"https://{host}".lower().encode() for host in hosts}
        self._origins |= {origin.lower().rstrip("/").encode() for origin in origins}

    def check(self, headers: Mapping[bytes, bytes], target: bytes = b"/") -> None:
        """Raises Refused for a stranger; `target` is the path that it wants, with its query."""
        host = headers.get(b"host", b"")
        if host not in self._hosts and host.lower() not in self._hosts:
            raise Refused(421, "not reached under that Host; add it to proxySettings.allowedHosts")
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            if site is not None and site not in _OWN_SITES and not _shows_page(headers, target):
                raise Refused(403, _OTHER_PAGE)
        elif origin.lower() not in self._origins:
            raise Refused(403, "pages of that Origin may not call; add it to proxySettings.allowedOrigins")


def _shows_page(headers: Mapping[bytes, bytes], target: bytes) -> bool:
    """Whether a person follows a link to a page of the gateway, which the page before cannot read."""
    shown = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return shown and not target.startswith(_ENDPOINTS)
