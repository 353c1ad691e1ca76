"""Who may speak to the gateway over HTTP at all: decided by Host and Origin, before anything is parsed."""

from collections.abc import Iterable, Mapping


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

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises Refused for a stranger."""
        host = headers.get(b"host", b"")
        if host not in self._hosts and host.lower() not in self._hosts:
            raise Refused(421, "not reached under that Host; add it to proxySettings.allowedHosts")
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise Refused(403, "pages of that Origin may not call; add it to proxySettings.allowedOrigins")
