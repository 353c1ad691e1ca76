"""Public URIs: a server's own while it is unique, `headgate://{server}/{uri}` otherwise."""

import hashlib
import re
from collections.abc import Callable, Container, Sequence
from urllib.parse import quote, unquote

from headgate.catalog.name_allocation import Namespace
from headgate.catalog.public_names import Key, PlainNameOf

_SERVER_SCHEME = "headgate://"
# The store has room for 20,000 names of all kinds; further ones are distinguished until a restart.
_MOST_REMEMBERED = 5_000
_LONGEST_REMEMBERED = 200
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
# The host as URL parsers of clients accept it; they refuse the whole page for an invalid one.
_AUTHORITY = re.compile(
    r"(?:[^/?#@]*@(?=[^/?#:]))?"
    r"[^\x00-\x20\x7f#/<>?@\[\\\]^|:]*(?::(?P<port>[0-9]{0,5}))?(?=[/?#]|$)"
)
# For some schemes they are stricter, and take a name that ends in a number for an address.
_WEB = ("http", "https", "ws", "wss", "ftp")
_ADDRESS = r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})(?=[:/?#]|$)"
_DOMAIN = r"(?:[A-Za-z0-9_\-]+\.)*(?:[A-Za-z_][A-Za-z0-9_\-]*)\.?"
_WEB_AUTHORITY = re.compile(
    rf"(?:[A-Za-z0-9._~%!$&'()*+,;=:\-]*@)?(?:{_ADDRESS}|{_DOMAIN})(?::(?P<port>[0-9]{{0,5}}))?(?=[/?#]|$)"
)
_FILE_AUTHORITY = re.compile(rf"(?:{_ADDRESS}|{_DOMAIN})?(?P<port>)(?=[/?#]|$)")


def scheme(uri: str) -> str:
    """The scheme in lower case; empty if there is none."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found else ""


def with_server(server: str, uri: str) -> str:
    """The URI with its server."""
    return f"{_SERVER_SCHEME}{quote(server, safe='')}/{uri}"


def split_server_uri(uri: str, servers: Container[str]) -> Key | None:
    """The server and its own URI, if the URI names one of these servers."""
    if not names_server(uri):
        return None
    host, slash, rest = uri[len(_SERVER_SCHEME) :].partition("/")
    server = unquote(host)
    return (server, rest) if slash and rest and server in servers else None


def names_server(uri: str) -> bool:
    """Whether the URI is of the scheme that names servers."""
    return uri[: len(_SERVER_SCHEME)].lower() == _SERVER_SCHEME


def is_client_readable(uri: str) -> bool:
    """Whether every client parses this as a URL."""
    known = scheme(uri)
    rest = len(known) + 1
    if not known or not uri.startswith("//", rest):
        return known not in ("", "file", *_WEB) or re.match(r"file:/[^/\\]", uri, re.IGNORECASE) is not None
    authority = _authority(known).match(uri, rest + 2)
    return (
        authority is not None
        and int(authority["port"] or 0) <= 65535
        and not authority[0].startswith((":", "@"))
    )


def _authority(known_scheme: str) -> re.Pattern[str]:
    if known_scheme == "file":
        return _FILE_AUTHORITY
    return _WEB_AUTHORITY if known_scheme in _WEB else _AUTHORITY


class PublicUris:
    """Allocates public URIs; the first owner of one keeps it, also after a restart."""

    def __init__(self, namespace: Namespace, *, parsed: bool) -> None:
        """`parsed` is whether clients parse the values, as they do with URIs but not with templates."""
        self._namespace = namespace
        self._parsed = parsed
        self._first: dict[str, str] = {}
        # The servers that had each URI when new servers were added; more than is stored.
        self._before: dict[str, str] = {}
        # To be stored once new servers have listed; None from then on.
        self._provisional: dict[str, Key] | None = None

    def hold(self) -> None:
        """Keep URIs without an owner provisional until `settle`."""
        if self._provisional is None:
            self._provisional, self._before = {}, self._first

    def settle(self) -> None:
        """Make the current owners final."""
        provisional, self._provisional = self._provisional, None
        self._namespace.claim(provisional or {})

    def is_provisional(self, key: Key) -> bool:
        """Not used: a URI is routed to the server that has it."""
        return False

    def find_former(self, name: str, keys: Sequence[Key], given: Callable[[Key], str | None]) -> Key | None:
        """None: `headgate://` names every server."""
        return None

    def plain_name(self, server: str, name: str) -> str:
        """The URI itself, unless no client could use it."""
        if names_server(name) or (self._parsed and not is_client_readable(name)):
            return with_server(server, name)
        return name

    def operator_name(self, name: str) -> str:
        """The URI itself: URIs are not renamed."""
        return name

    def allocate(
        self,
        plain_names: Sequence[tuple[Key, str]],
        plain_name_of: PlainNameOf,
        configured: Container[str],
        *,
        anew: bool,
    ) -> dict[Key, str]:
        """A unique URI for each key, given with its plain one."""
        names: dict[Key, str] = {}
        claims: dict[str, Key] = {}
        first: dict[str, str] = {}
        for key, plain in plain_names:
            server = key[0]
            if plain != key[1]:
                names[key] = plain
                continue
            had_first = self._first if self._provisional is None else self._before
            owner = self._owner(plain) or had_first.get(plain) or first.get(plain)
            if owner is None and len(first) < _MOST_REMEMBERED:
                claims[_entry(plain)] = (server, "")
            first[plain] = owner = owner or server
            names[key] = plain if owner == server else with_server(server, plain)
        self._first = first
        self._namespace.set_in_use([_entry(plain) for plain in list(first)[:_MOST_REMEMBERED]])
        if self._provisional is None:
            self._namespace.claim(claims)
        else:
            self._provisional = claims
        return names

    def _owner(self, uri: str) -> str | None:
        owner = self._namespace.owner(_entry(uri))
        return owner[0] if owner else None


def _entry(uri: str) -> str:
    """The URI as it is stored: of bounded length."""
    if len(uri) <= _LONGEST_REMEMBERED:
        return uri
    return f"sha256-{hashlib.sha256(uri.encode()).hexdigest()}"
