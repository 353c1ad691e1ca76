"""The paths of the MCP endpoints, and the guard that refuses HTTP requests by request line, Host, Origin and
Sec-Fetch-Site before they are handled.
"""

import re
from collections.abc import Iterable, Mapping

from headgate.domain.listing_mode import ListingMode

MCP = "/mcp"
SSE = "/sse"
# Where clients of the stream send to.
MESSAGES = "/messages"
# No mode may ever be called so: it is where older clients look for the stream.
MCP_SSE = f"{MCP}/sse"


def _with_modes(path: str) -> dict[str, ListingMode]:
    # Some clients put a slash at the end of every address.
    return {f"{path}/{mode}{slash}": mode for mode in ListingMode for slash in ("", "/")}


# Beside the plain path, one for each mode.
MCP_PATHS = {MCP: None, f"{MCP}/": None, **_with_modes(MCP)}
SSE_PATHS = {SSE: None, f"{SSE}/": None, MCP_SSE: None, f"{MCP_SSE}/": None, **_with_modes(SSE)}
# The listing mode of each path; None for the plain path.
LISTING_MODES = MCP_PATHS | SSE_PATHS


# Browsers say with each request which page made it; a GET of another page has no Origin where the page does
# not read the answer, as with an image or a link. Command-line clients send no such header.
_SAME_SITES = frozenset({b"same-origin", b"none"})
_CROSS_SITE_REASON = (
    "a page of another site may not call without an Origin; add its origin to proxySettings.allowedOrigins"
)
# A link there would open a stream.
_ENDPOINTS = (MCP.encode(), SSE.encode(), MESSAGES.encode())


class HttpRefusal(Exception):
    """A request that is refused with an HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class RequestGuard:
    """Knows the host names and origins of this gateway."""

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
        """Check Host, Origin and Sec-Fetch-Site; raises HttpRefusal. `target` is the path with its query."""
        host = headers.get(b"host", b"")
        if host not in self._hosts and host.lower() not in self._hosts:
            raise HttpRefusal(421, "not reached under that Host; add it to proxySettings.allowedHosts")
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            if site is not None and site not in _SAME_SITES and not _is_navigation(headers, target):
                raise HttpRefusal(403, _CROSS_SITE_REASON)
        elif origin.lower() not in self._origins:
            reason = "pages of that Origin may not call; add it to proxySettings.allowedOrigins"
            raise HttpRefusal(403, reason)


def _is_navigation(headers: Mapping[bytes, bytes], target: bytes) -> bool:
    """Whether a person follows a link to a page of the gateway, which the page before cannot read."""
    how = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest"))
    return how == (b"navigate", b"document") and not target.startswith(_ENDPOINTS)


# Empty lines before it are allowed by RFC 9112.
_REQUEST_LINE = re.compile(rb"[\r\n]*+[!-~]++ [!-~]++ HTTP/1\.[01]\r\n")
_ANY_LINE = re.compile(rb"[\r\n]*+([^\n]++)\n")
_VERSION = re.compile(rb"[A-Z]+/\d+(\.\d+)?")
_END_OF_HEAD = b"\r\n\r\n"


class RequestLineChecker:
    """Finds the request line of each request, whether it arrives in pieces or pipelined."""

    __slots__ = ("_head", "at", "data")

    def __init__(self) -> None:
        # The bytes that are being parsed, and where in them the request begins or goes on: set and moved by
        # the connection itself, because every request comes by here.
        self.data = b""
        self.at = 0
        # What came of the head before it.
        self._head = b""

    def end_head(self) -> None:
        """The parser has found the end of a head; raises HttpRefusal for its request line."""
        if self._head:
            self.data, self._head = self._head + self.data[self.at :], b""
            self.at = 0
        line = _REQUEST_LINE.match(self.data, self.at)
        if line is None:
            raise _request_line_refusal(self.data[self.at :])
        end = self.data.find(_END_OF_HEAD, line.end() - 2)
        if end < 0:
            raise HttpRefusal(400, "the request is malformed")
        self.at = end + len(_END_OF_HEAD)

    def keep_rest(self) -> None:
        """Check the request line of an incomplete head; raises HttpRefusal if it is already wrong."""
        rest = self.data[self.at :]
        self._head += rest
        # Heads may come byte by byte, and only the end of a line is worth a look.
        if (
            b"\n" in rest
            and _ANY_LINE.match(self._head) is not None
            and _REQUEST_LINE.match(self._head) is None
        ):
            raise _request_line_refusal(self._head)


def _request_line_refusal(head: bytes) -> HttpRefusal:
    found = _ANY_LINE.match(head)
    words = found[1].split() if found is not None else []
    if len(words) == 3 and _VERSION.fullmatch(words[2]) and words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        return HttpRefusal(505, "this gateway speaks HTTP/1.1 and HTTP/1.0")
    reason = "the request line must be a method, a path and HTTP/1.1, with one space between them"
    return HttpRefusal(400, reason)
