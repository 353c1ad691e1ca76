"""The keys of one entry of `mcpServers`, and checks of its proxy, TLS files, headers and environment."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from headgate.config.config_files import BasePaths
from headgate.config.setting_values import (
    about,
    between,
    display_value,
    invalid_value_error,
    seconds,
    text,
    to_camel_case,
)
from headgate.domain.child_environment import loads_code
from headgate.domain.errors import ConfigError
from headgate.domain.http_proxy import DIRECT, InvalidProxy, parse_proxy
from headgate.domain.server_spec import DEFAULT_TLS, ServerSpec, TlsFiles, TransportType

Word = Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"]
Builtin = Literal["example", "knowledge"]
Class = Literal["read", "idempotent", "keyed", "probeable", "unsafe"]

_DAY = 86_400


class ProbeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to ask a server whether a call has happened."""

    tool: Annotated[str, text(512, "The tool of the same server that tells.")]
    arguments: Annotated[
        dict[str, Any],
        about("Its arguments; $arguments.name, $key and $op_id stand for those of the call."),
    ] = {}
    happened: Annotated[
        str, about("The member of its answer that says so; without it, any answer with something in it.")
    ] = ""
    # None is 1 s for a process, and as long as one call may take for a url.
    settle: Annotated[
        float | None,
        seconds(0, 86_400, "Seconds after a lost connection before it is believed that nothing happened."),
    ] = None


class RateEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many calls may begin."""

    per_second: Annotated[float, between(0.001, 1_000_000, "How many calls may begin in a second.")]
    burst: Annotated[int, between(1, 1_000_000, "How many may begin at once after a pause.")] = 1


class RetryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a call is tried again, where that does no harm."""

    attempts: Annotated[int, between(1, 10, "The most attempts, the first one included.")] = 3
    base_delay: Annotated[
        float, seconds(0.01, 60, "The longest wait before the second attempt; it doubles with each.")
    ] = 0.2
    max_delay: Annotated[float, seconds(0.01, 600, "The longest wait of all; at least the baseDelay.")] = 5.0


class BreakerEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When a server that fails is left alone."""

    failures: Annotated[int, between(1, 1000, "After so many lost connections or timeouts in a row.")] = 5
    rest: Annotated[float, seconds(0.1, 3600, "Seconds that it is left alone at first.")] = 30.0


class ClientCertEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The certificate that the gateway shows to a server."""

    cert: Annotated[str, text(4096, "The file of the certificate, PEM.")]
    key: Annotated[
        str, about("The file of its key, PEM; without it the key is in the file of the certificate.")
    ] = ""
    password: Annotated[str, about("The password of the key.")] = ""


class ToolPolicyEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How calls are carried: of a whole server, or of one tool."""

    kind: Annotated[Class | None, about("What a second call with the same arguments would do.")] = (
        msgspec.field(default=None, name="class")
    )
    key_argument: Annotated[str, text(512, "The argument in which the server takes an idempotency key.")] = ""
    key_header: Annotated[str, text(512, "The HTTP header in which the server takes an idempotency key.")] = (
        ""
    )
    key_window: Annotated[
        float | None, seconds(1, 365 * _DAY, "Seconds for which the server remembers a key.")
    ] = None
    probe: Annotated[ProbeEntry | None, about("How to ask whether a call has happened.")] = None
    ledger: Annotated[
        Literal["keyed", "all"] | None, about("Which calls are recorded: those with a key, or all.")
    ] = None
    priority: Annotated[
        Literal["low", "normal", "high"] | None, about("Who goes first where calls have to wait.")
    ] = None
    rate: Annotated[RateEntry | None, about("How many calls may begin.")] = None
    call_timeout: Annotated[
        float | None, seconds(0.1, _DAY, "Seconds for one call, all of its attempts together.")
    ] = None


class ServerEntry(ToolPolicyEntry, frozen=True, kw_only=True, rename="camel"):
    """One server as its operator writes it; the sentences are what an editor shows."""

    command: Annotated[str, about("The program to start; its arguments go into args.")] = ""
    args: Annotated[tuple[str, ...], about("The arguments of the command.")] = ()
    env: Annotated[
        dict[str, str], about("Variables for the command, besides those that every command inherits.")
    ] = {}
    env_file: Annotated[str, about("A file of NAME=value lines with more variables; env wins over it.")] = ""
    inherit_env: Annotated[
        tuple[str, ...],
        about("Names of the gateway's own variables that the command inherits too; a * stands for anything."),
    ] = ()
    cwd: Annotated[str, about("Where the command starts; relative to the configuration file.")] = ""
    url: Annotated[str, about("The http or https address of a remote server.")] = ""
    headers: Annotated[dict[str, str], about("Headers that go with every request to the url.")] = {}
    proxy: Annotated[
        str, about("The http or https proxy for the url; direct is none, whatever HTTPS_PROXY says.")
    ] = ""
    ca_file: Annotated[
        str, about("PEM certificates that the server's is checked against, instead of the system's.")
    ] = ""
    client_cert: Annotated[
        ClientCertEntry | None, about("The certificate to show to the server: a PEM file, or an object.")
    ] = None
    http2: Annotated[bool, about("Whether HTTP/2 is offered to the server; needs headgate-mcp[http2].")] = (
        False
    )
    builtin: Annotated[Builtin | None, about("A server that is part of the gateway.")] = None
    transport: Annotated[
        Word | None, about("How to speak to the server; a url ending in /sse means sse.")
    ] = None
    type: Annotated[Word | None, about("The same as transport, as VS Code writes it.")] = None
    enabled: Annotated[bool, about("Whether the server is used.")] = True
    disabled: Annotated[bool, about("The opposite of enabled, as other clients write it.")] = False
    timeout: Annotated[float, seconds(0.1, 3600, "Seconds for one call; progress starts them anew.")] = 60.0
    max_timeout: Annotated[
        float, seconds(0.1, 86_400, "Seconds for one call whatever its progress; at least the timeout.")
    ] = 900.0
    connect_timeout: Annotated[float, seconds(0.1, 300, "Seconds for connecting.")] = 10.0
    start_timeout: Annotated[
        float, seconds(0.1, 3600, "Seconds from the start to the end of the handshake.")
    ] = 60.0
    max_connections: Annotated[
        int, between(1, 10_000, "The most connections besides the main one, for clients it may ask.")
    ] = 32
    listing: Annotated[
        Literal["full", "partitioned", "slim", "search"] | None,
        about("How its tools are listed, whatever the gateway's mode; search lists none of them."),
    ] = None
    pin: Annotated[
        tuple[str, ...], about("Tools that are shown in full before any other; a * stands for anything.")
    ] = ()
    hide: Annotated[
        tuple[str, ...],
        about("Tools that are neither listed, found nor called; a * stands for anything."),
    ] = ()
    rename: Annotated[dict[str, str], about("What clients call a tool, by its name at the server.")] = {}
    shared: Annotated[
        bool, about("Whether all clients share one connection, on which none of them can be asked.")
    ] = False
    tools: Annotated[
        dict[str, ToolPolicyEntry],
        about(
            "How calls of single tools are carried, by name; a * stands for anything, the first one counts."
        ),
    ] = {}
    trust_annotations: Annotated[
        bool, about("Whether what the server says of its own tools decides their class.")
    ] = True
    retry: Annotated[RetryEntry | None, about("How a call is tried again, where that does no harm.")] = None
    breaker: Annotated[BreakerEntry | None, about("When a server that fails is left alone.")] = None
    max_concurrency: Annotated[int, between(1, 100_000, "The most calls at a time.")] = 1024
    max_queue: Annotated[int, between(0, 1_000_000, "The most calls that wait for their turn.")] = 1024
    cold: Annotated[bool | None, about("Whether it is started with its first call only.")] = None
    hot: Annotated[bool | None, about("The opposite of cold.")] = None
    idle_timeout: Annotated[
        float | None,
        seconds(0.1, 7 * _DAY, "Seconds without a call after which it is stopped until the next."),
    ] = None
    max_restarts: Annotated[
        int, between(0, 1000, "How often in a row it may fail to start before only a call starts it.")
    ] = 20


def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The keys of an object in the file, as they are written there."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


SERVER_FIELDS = fields_of(ServerEntry)
RESERVED_SERVER_KEYS = ("limits", "oauth", "behaviour")
# How Windsurf and Gemini write it.
SERVER_KEY_ALIASES = {"serverUrl": "url", "httpUrl": "url", "excludeTools": "hide", "disabledTools": "hide"}
# A token is often among them, and an error message ends up in a log.
SECRET_KEYS = ("command", "args", "env", "envFile", "cwd", "url", "headers", "arguments", "proxy", "password")
# They are about TLS.
_TLS_KEYS = ("ca_file", "client_cert", "http2")


def check_connection(name: str, entry: ServerEntry, warnings: list[str]) -> None:
    """Raise ConfigError for a proxy that cannot be used; warn of what has no effect."""
    proxy = entry.proxy.strip()
    if proxy and proxy != DIRECT:
        try:
            parse_proxy(proxy)
        except InvalidProxy as error:
            # Without the URL, which may contain a password.
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

    def path(name: str, where: str) -> str:
        return str(base_paths.resolve(name, where)) if name else ""

    own = entry.client_cert
    if not entry.ca_file and own is None:
        return DEFAULT_TLS
    ca_file = path(entry.ca_file, "caFile")
    if own is None:
        return TlsFiles(ca_file)
    return TlsFiles(ca_file, path(own.cert, "clientCert"), path(own.key, "key in clientCert"), own.password)


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A second one beside ours would cut requests in the wrong place or contradict the protocol.
_RESERVED_HEADERS = ("content-length", "transfer-encoding", "connection")
_RESERVED_PREFIX = "mcp-"
# Configurations of other clients have them; the gateway sends the same, or what it can read.
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
    warnings += [
        f"{display_value(name)} in {inside} does not pass on variables that load code into programs: "
        "write the whole name of each that is needed"
        if "*" in name
        else f"{inside} passes on {display_value(name)}, which loads code into every program that reads it: "
        "remove it unless the server needs it"
        for name in names
        if loads_code(name)
    ]
    return names


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
