"""Allocates unique public names and URIs to the items of one kind; their owner keeps them across restarts."""

import hashlib
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from urllib.parse import quote, unquote

from headgate.catalog.public_names import (
    RESERVED,
    Key,
    NameOwners,
    PlainNameOf,
    allocate_names,
    former_names,
    hash_suffix,
    is_default_name,
    known_prefixes,
    public_name,
    sanitised_name,
)


class Namespace:
    """The names of one kind in the store of all names; implements NameOwners."""

    def __init__(self, owners: NameOwners, prefix: str, others: list["Namespace"]) -> None:
        """`others` are all namespaces of this store; this one is added to them."""
        self._owners = owners
        self._prefix = prefix
        self._others = others
        # The names that are in use.
        self.used: Collection[str] = ()
        others.append(self)

    def owner(self, public_name: str) -> Key | None:
        return self._owners.owner(self._prefix + public_name)

    def claim(self, names: Mapping[str, Key]) -> None:
        if names:
            # The store evicts the least recently used names. A server that lists new names all the time must
            # not evict those that other kinds use, so these are read.
            for namespace in self._others:
                for name in namespace.used:
                    namespace.owner(name)
            self._owners.claim({self._prefix + name: key for name, key in names.items()})


PlainNames = Sequence[tuple[Key, str]]
# The name that an operator gave to a tool, as written; None for most.
OperatorNameOf = Callable[[Key], str | None]


class NameAllocator:
    """Allocates a public name to each item of a kind; leaves it unchanged where no other rule is given."""

    def plain_name(self, server: str, name: str) -> str:
        """The name before collisions are resolved; computed once for each item."""
        return name

    def operator_name(self, name: str) -> str:
        """The name that an operator's choice results in."""
        return name

    def allocate(
        self, plain_names: PlainNames, plain_name_of: PlainNameOf, configured: Container[str], *, anew: bool
    ) -> dict[Key, str]:
        """A unique name for each key, given with its plain name in the order of the configuration.

        `plain_name_of` gives the plain name of any item; `anew` is whether it may have changed. Names of
        servers that are no longer `configured` are free.
        """
        raise NotImplementedError

    def hold(self) -> None:
        """Keep names without an owner provisional until `settle`: a server that starts later may get them."""

    def settle(self) -> None:
        """Make the current names final."""

    def is_provisional(self, key: Key) -> bool:
        """Whether the item may still get another name; never for a URI, whose server is known."""
        return False

    def find_former(self, name: str, keys: Sequence[Key], given: OperatorNameOf) -> Key | None:
        """The one of these items that had the name before, if it is unambiguous."""
        return None


class UnchangedNames(NameAllocator):
    """Leaves names and URIs unchanged; for a single server."""

    def __init__(self, limit: int) -> None:
        """`limit` applies to names that an operator chose."""
        self._limit = limit

    def operator_name(self, name: str) -> str:
        return sanitised_name(name, self._limit)

    def allocate(
        self, plain_names: PlainNames, plain_name_of: PlainNameOf, configured: Container[str], *, anew: bool
    ) -> dict[Key, str]:
        """The names; a tool that was renamed to the name of another keeps its own."""
        # Including tools that are renamed themselves: they may have to keep their name.
        own = {*RESERVED, *(key[1] for key, _ in plain_names)}
        names: dict[Key, str] = {}
        taken: set[str] = set()
        for key, name in plain_names:
            names[key] = key[1] if name in own or name in taken else name
            taken.add(names[key])
        return names


class PrefixedNames(NameAllocator):
    """Allocates `{server}_{name}` to tools and prompts; the owner of a name keeps it."""

    def __init__(self, limit: int, namespace: Namespace, reserved: Collection[str] = ()) -> None:
        self._limit = limit
        self._namespace = namespace
        self._reserved = reserved
        # The plain names, and the names allocated for them.
        self._known: tuple[dict[Key, str], dict[Key, str]] = {}, {}
        # Names that are not claimed yet, by item; None once all are.
        self._provisional: dict[Key, str] | None = None

    def plain_name(self, server: str, name: str) -> str:
        return public_name(server, name, self._limit)

    def operator_name(self, name: str) -> str:
        return sanitised_name(name, self._limit)

    def hold(self) -> None:
        if self._provisional is None:
            self._provisional = {}

    def settle(self) -> None:
        provisional, self._provisional = self._provisional, None
        if provisional:
            self._namespace.claim({name: key for key, name in provisional.items()})

    def is_provisional(self, key: Key) -> bool:
        return self._provisional is not None and key in self._provisional

    def allocate(
        self, plain_names: PlainNames, plain_name_of: PlainNameOf, configured: Container[str], *, anew: bool
    ) -> dict[Key, str]:
        """A unique name for each key, given with its plain name; `anew` allocates names with a hash again."""
        plain = dict(plain_names)
        before, given = self._known
        # An item with a name keeps it: reading thousands of owners at every change takes a while.
        names = {key: given[key] for key, name in plain.items() if before.get(key) == name}
        if anew:
            # The owner of the plain name of an item with a hash may have another name now.
            names = {key: name for key, name in names.items() if name == plain[key]}
        owners: NameOwners = self._namespace
        if self._provisional is not None:
            # Without names that a new item may get, and without those that have a hash to lose.
            contested = {name for key, name in plain.items() if key not in names}
            names = {
                key: name
                for key, name in names.items()
                if key not in self._provisional or (name == plain[key] and name not in contested)
            }
            # Claimed again below, unless they are gone.
            self._provisional = {key: name for key, name in self._provisional.items() if key in names}
            owners = _ProvisionalOwners(self._namespace, self._provisional)
        new = [key for key in plain if key not in names]
        reserved = {*self._reserved, *names.values()}
        names |= allocate_names(new, self._limit, owners, plain, reserved, plain_name_of, configured)
        self._known = plain, names
        self._namespace.used = names.values()
        return names

    def find_former(self, name: str, keys: Sequence[Key], given: OperatorNameOf) -> Key | None:
        """The item that had this name in version 0.1.0 or under another limit."""
        if name in self._reserved:
            return None
        owner = self._namespace.owner(name)
        if owner is not None:
            # The owner of the name is known, existing or not.
            if owner not in keys:
                return None
            if (chosen := given(owner)) is not None:
                return owner if name in former_names(owner, self._limit, chosen) else None
            return owner if name.endswith(hash_suffix(*owner)) or is_default_name(owner, name) else None
        # Grouped by server: most of thousands of names have another prefix.
        servers = {server for server, _ in keys}
        likely = {server for server in servers if name.startswith(known_prefixes(server, self._limit)[-1])}
        found = (
            key
            for key in keys
            if (key[0] in likely or given(key)) and name in former_names(key, self._limit, given(key))
        )
        return next(found, None)


class _ProvisionalOwners:
    """The owners of names while servers start: claims are not stored yet."""

    def __init__(self, namespace: Namespace, provisional: dict[Key, str]) -> None:
        self.owner = namespace.owner
        self._provisional = provisional

    def claim(self, names: Mapping[str, Key]) -> None:
        self._provisional.update((key, name) for name, key in names.items())


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
    pattern = _WEB_AUTHORITY if known in _WEB else _AUTHORITY
    authority = (_FILE_AUTHORITY if known == "file" else pattern).match(uri, rest + 2)
    return (
        authority is not None
        and int(authority["port"] or 0) <= 65535
        and not authority[0].startswith((":", "@"))
    )


class PublicUris(NameAllocator):
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
        if self._provisional is None:
            self._provisional, self._before = {}, self._first

    def settle(self) -> None:
        provisional, self._provisional = self._provisional, None
        self._namespace.claim(provisional or {})

    def plain_name(self, server: str, name: str) -> str:
        """The URI itself, unless no client could use it."""
        if names_server(name) or (self._parsed and not is_client_readable(name)):
            return with_server(server, name)
        return name

    def allocate(
        self, plain_names: PlainNames, plain_name_of: PlainNameOf, configured: Container[str], *, anew: bool
    ) -> dict[Key, str]:
        names: dict[Key, str] = {}
        claims: dict[str, Key] = {}
        first: dict[str, str] = {}
        for key, plain in plain_names:
            server = key[0]
            if plain != key[1]:
                names[key] = plain
                continue
            had_first = self._first if self._provisional is None else self._before
            stored = self._namespace.owner(_entry(plain))
            owner = stored[0] if stored else had_first.get(plain) or first.get(plain)
            if owner is None and len(first) < _MOST_REMEMBERED:
                claims[_entry(plain)] = (server, "")
            first[plain] = owner = owner or server
            names[key] = plain if owner == server else with_server(server, plain)
        self._first = first
        self._namespace.used = [_entry(plain) for plain in list(first)[:_MOST_REMEMBERED]]
        if self._provisional is None:
            self._namespace.claim(claims)
        else:
            self._provisional = claims
        return names


def _entry(uri: str) -> str:
    """The URI as it is stored: of bounded length."""
    if len(uri) <= _LONGEST_REMEMBERED:
        return uri
    return f"sha256-{hashlib.sha256(uri.encode()).hexdigest()}"
