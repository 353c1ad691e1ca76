"""Who may speak to the gateway over HTTP at all: decided by Host and Origin, before anything is parsed."""

from collections.abc import Iterable

# Headers that mean something different when they are there twice.
_ONCE = {
    b"host",
    b"origin",
    b"content-type",
    b"content-length",
    b"authorization",
    b"mcp-protocol-version",
    b"mcp-session-id",
    b"mcp-method",
    b"mcp-name",
}


class Refused(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Guard:
    """Knows the names under which this gateway is reached."""

    def __init__(self, port: int, hosts: Iterable[str], origins: Iterable[str]) -> None:
        local = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        if port == 80:
            local += ["127.0.0.1", "localhost", "[::1]"]
        allowed = [*local, *hosts]
        self._hosts = {host.lower().encode() for host in allowed}
        self._origins = {f"http://{host}".lower().encode() for host in allowed}
        self._origins |= {f"https://{host}".lower().encode() for host in hosts}
        self._origins |= {origin.lower().rstrip("/").encode() for origin in origins}

    def check(self, pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        """The headers by name; raises Refused for a stranger or for two headers where one must be."""
        headers = dict(pairs)
        if len(headers) != len(pairs):
            _refuse_doubles(pairs)
        host = headers.get(b"host", b"")
        if host not in self._hosts and host.lower() not in self._hosts:
            raise Refused(
                421, "this gateway is not reached under that Host; add it to proxySettings.allowedHosts"
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise Refused(403, "pages of that Origin may not call; add it to proxySettings.allowedOrigins")
        return headers


def _refuse_doubles(pairs: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in seen and name in _ONCE:
            raise Refused(400, f"the header {name.decode('latin-1')} is there twice")
        seen.add(name)
