"""Reads how a server is reached: proxy, TLS files, header names, inherited environment variables."""

import re
from collections.abc import Sequence

import msgspec

from headgate.config.config_files import BasePaths
from headgate.config.server_entries import ServerEntry
from headgate.config.setting_values import display_value, invalid_value_error, to_camel_case
from headgate.domain.child_environment import loads_code
from headgate.domain.errors import ConfigError
from headgate.domain.http_proxy import DIRECT, InvalidProxy, parse_proxy
from headgate.domain.server_spec import DEFAULT_TLS, ServerSpec, TlsFiles, TransportType

# They are about TLS.
_TLS_KEYS = ("ca_file", "client_cert", "http2")


def check_connection(name: str, entry: ServerEntry, warnings: list[str]) -> None:
    """Raise ConfigError for a proxy that cannot be used; warn of what has no effect."""
    proxy = entry.proxy.strip()
    if proxy and proxy != DIRECT:
        try:
            parse_proxy(proxy)
        except InvalidProxy as error:
            # The URL itself is not shown: it may hold a password.
            raise ConfigError(
                f"its proxy is not usable, {error}",
                hint=f"write proxy as http://host:port or https://host:port, or {DIRECT} for none",
            ) from error
    if not entry.url.lower().startswith("http:"):
        return
    idle = [key for key in _TLS_KEYS if getattr(entry, key)]
    if proxy.lower().startswith("https:") and "ca_file" in idle:
        # The proxy's own certificate is checked against it.
        idle.remove("ca_file")
    warnings += [
        f"{to_camel_case(key)!r} in server {display_value(name)} has no effect on a url with http: "
        "write https"
        for key in idle
    ]


def tls_of(entry: ServerEntry, base_paths: BasePaths) -> TlsFiles:
    """The files of the entry, relative to the configuration."""
    client_cert = entry.client_cert
    if not entry.ca_file and client_cert is None:
        return DEFAULT_TLS
    ca_file = _path(entry.ca_file, "caFile", base_paths)
    if client_cert is None:
        return TlsFiles(ca_file)
    cert, key = (
        _path(client_cert.cert, "clientCert", base_paths),
        _path(client_cert.key, "key in clientCert", base_paths),
    )
    return TlsFiles(ca_file, cert, key, client_cert.password)


def _path(text: str, where: str, base_paths: BasePaths) -> str:
    return str(base_paths.resolve(text, where)) if text else ""


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A second one beside ours would cut requests in the wrong place or contradict the protocol.
_RESERVED_HEADERS = ("content-length", "transfer-encoding", "connection")
_RESERVED_PREFIX = "mcp-"
# Other clients' configurations have them, and what we send says the same or is what we can read.
_REDUNDANT_HEADERS = ("accept", "accept-encoding", "content-type")
# They mean something already, which a key in their place would break.
_UNUSABLE_FOR_KEYS = ("host", "last-event-id", "cache-control")


def is_header_name(name: str) -> bool:
    """Whether HTTP allows the name."""
    return _HEADER_NAME.fullmatch(name) is not None


def is_reserved_header(name: str) -> bool:
    """Whether only the gateway may write the header."""
    return name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIX)


def is_redundant_header(name: str) -> bool:
    """Whether the gateway writes the header itself, so that another value has no effect."""
    return name.lower() in _REDUNDANT_HEADERS


def is_custom_header(name: str) -> bool:
    """Whether the header can carry something of the operator's choice."""
    return (
        is_header_name(name)
        and not is_reserved_header(name)
        and not is_redundant_header(name)
        and name.lower() not in _UNUSABLE_FOR_KEYS
    )


def inherited_names(names: tuple[str, ...], where: str, owner: str, warnings: list[str]) -> tuple[str, ...]:
    """The names as given, with a warning for each that loads code; raises ConfigError."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            # Not the entry itself: what follows the = may be a secret.
            what = display_value(name.partition("=")[0] + "=...") if "=" in name else display_value(name)
            raise invalid_value_error(
                f"an entry of {where}",
                what,
                "the name of a variable; its value, if it has a new one, goes into env",
            )
    inside = f"{where} of {owner}" if owner else where
    warnings += [_code_loading_warning(name, inside) for name in names if loads_code(name)]
    return names


def _code_loading_warning(name: str, inside: str) -> str:
    if "*" in name:
        return (
            f"{display_value(name)} in {inside} does not pass on variables that load code into programs: "
            "write the whole name of each that is needed"
        )
    return (
        f"{inside} passes on {display_value(name)}, which loads code into every program that reads it: "
        "remove it unless the server needs it"
    )


def with_inherited_env(servers: Sequence[ServerSpec], names: tuple[str, ...]) -> tuple[ServerSpec, ...]:
    """The servers, of which each process inherits these variables besides its own."""
    if not names:
        return tuple(servers)
    return tuple(
        msgspec.structs.replace(server, inherit_env=tuple(dict.fromkeys((*names, *server.inherit_env))))
        if server.transport is TransportType.STDIO
        else server
        for server in servers
    )
