"""The keys of one entry of `mcpServers`, with their types and ranges."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headgate.config.setting_values import about, between, seconds

Word = Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"]
Builtin = Literal["example", "knowledge"]
Class = Literal["read", "idempotent", "keyed", "probeable", "unsafe"]

_DAY = 86_400


class ProbeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to ask a server whether a call has happened."""

    tool: Annotated[
        str, Meta(min_length=1, max_length=512, description="The tool of the same server that tells.")
    ]
    arguments: Annotated[
        dict[str, Any],
        about("Its arguments; $arguments.name, $key and $op_id stand for those of the call."),
    ] = {}
    happened: Annotated[
        str, about("The member of its answer that says so; without it, any answer with something in it.")
    ] = ""
    # None is 1 s for a process, and as long as one call may take for a url.
    settle: (
        Annotated[
            float,
            seconds(
                0, 86_400, "Seconds after a lost connection before it is believed that nothing happened."
            ),
        ]
        | None
    ) = None


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

    cert: Annotated[str, Meta(min_length=1, max_length=4096, description="The file of the certificate, PEM.")]
    key: Annotated[
        str, about("The file of its key, PEM; without it the key is in the file of the certificate.")
    ] = ""
    password: Annotated[str, about("The password of the key.")] = ""


class ToolPolicyEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How calls are carried: of a whole server, or of one tool."""

    kind: Annotated[Class, about("What a second call with the same arguments would do.")] | None = (
        msgspec.field(default=None, name="class")
    )
    key_argument: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="The argument in which the server takes an idempotency key.",
        ),
    ] = ""
    key_header: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="The HTTP header in which the server takes an idempotency key.",
        ),
    ] = ""
    key_window: (
        Annotated[float, seconds(1, 365 * _DAY, "Seconds for which the server remembers a key.")] | None
    ) = None
    probe: Annotated[ProbeEntry, about("How to ask whether a call has happened.")] | None = None
    ledger: (
        Annotated[Literal["keyed", "all"], about("Which calls are recorded: those with a key, or all.")]
        | None
    ) = None
    priority: (
        Annotated[Literal["low", "normal", "high"], about("Who goes first where calls have to wait.")] | None
    ) = None
    rate: Annotated[RateEntry, about("How many calls may begin.")] | None = None
    call_timeout: (
        Annotated[float, seconds(0.1, _DAY, "Seconds for one call, all of its attempts together.")] | None
    ) = None


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
    client_cert: (
        Annotated[ClientCertEntry, about("The certificate to show to the server: a PEM file, or an object.")]
        | None
    ) = None
    http2: Annotated[bool, about("Whether HTTP/2 is offered to the server; needs headgate[http2].")] = False
    builtin: Annotated[Builtin, about("A server that is part of the gateway.")] | None = None
    transport: (
        Annotated[Word, about("How to speak to the server; a url ending in /sse means sse.")] | None
    ) = None
    type: Annotated[Word, about("The same as transport, as VS Code writes it.")] | None = None
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
    listing: (
        Annotated[
            Literal["full", "partitioned", "slim", "search"],
            about("How its tools are listed, whatever the gateway's mode; search lists none of them."),
        ]
        | None
    ) = None
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
    retry: Annotated[RetryEntry, about("How a call is tried again, where that does no harm.")] | None = None
    breaker: Annotated[BreakerEntry, about("When a server that fails is left alone.")] | None = None
    max_concurrency: Annotated[int, between(1, 100_000, "The most calls at a time.")] = 1024
    max_queue: Annotated[int, between(0, 1_000_000, "The most calls that wait for their turn.")] = 1024
    cold: Annotated[bool, about("Whether it is started with its first call only.")] | None = None
    hot: Annotated[bool, about("The opposite of cold.")] | None = None
    idle_timeout: (
        Annotated[
            float, seconds(0.1, 7 * _DAY, "Seconds without a call after which it is stopped until the next.")
        ]
        | None
    ) = None
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
