"""One upstream server as configured, and its state."""

from enum import StrEnum

import msgspec

from headgate.domain.listing_mode import NO_CURATION, Curation
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY, UpstreamPolicy


class TransportType(StrEnum):
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable-http"
    SSE = "sse"
    BUILTIN = "builtin"


class TlsFiles(msgspec.Struct, frozen=True):
    """Trusted certificates and the client certificate for TLS with one server."""

    # Certificates that its own is checked against, instead of the system's store; a file or a directory.
    ca_file: str = ""
    client_cert: str = ""
    # Empty where the key is in the file of the certificate.
    client_key: str = ""
    client_key_password: str = ""


DEFAULT_TLS = TlsFiles()


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one upstream; equal specs need no reconnection."""

    name: str
    transport: TransportType
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    # Variables of the gateway that the process gets besides those that every process gets.
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    # The URL of its proxy, or `direct`; empty for the one of the environment.
    proxy: str = ""
    tls: TlsFiles = DEFAULT_TLS
    # Whether HTTP/2 is offered to it.
    http2: bool = False
    builtin: str = ""
    enabled: bool = True
    # Why it is not enabled, as an operator reads it.
    disabled_reason: str = ""
    # One call, from the moment it is sent; progress from the upstream starts it anew.
    timeout_seconds: float = 60.0
    # One call, whatever the progress.
    max_timeout_seconds: float = 900.0
    # TCP and TLS, apart from the time that the answer takes.
    connect_timeout_seconds: float = 10.0
    # Connections besides the main one, for clients that the server may ask something.
    max_connections: int = 32
    # Whether all clients share the main connection, which accepts no input requests.
    shared: bool = False
    # From spawning or connecting to the end of the handshake.
    start_timeout_seconds: float = 60.0
    # How its tools are listed.
    curation: Curation = NO_CURATION
    # How its calls are carried.
    policy: UpstreamPolicy = DEFAULT_UPSTREAM_POLICY
    # Started with its first call only, and stopped again when it was not used for so long; None is never.
    cold: bool = False
    idle_timeout_seconds: float | None = None
    # How often in a row it may fail to start before only a call starts it again.
    max_restarts: int = 20


class ServerState(StrEnum):
    """Where an upstream is in its life, as `/ready` and the console show it."""

    DISABLED = "disabled"
    # Its entry in the configuration cannot be used.
    REJECTED = "rejected"
    STARTING = "starting"
    READY = "ready"
    # Disconnected with a scheduled attempt, or reporting that it cannot do its work.
    BACKOFF = "backoff"
    # Failed to start as often as it may; the next use starts it again.
    FAILED = "failed"
    # Stopped until it is used.
    IDLE = "idle"
    STOPPED = "stopped"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    # None where the entry has no value.
    transport: TransportType | None = None
    state: ServerState
    protocol_version: str | None = None
    tools: int = 0
    prompts: int = 0
    resources: int = 0
    templates: int = 0
    # Connections for single clients, besides the main one.
    client_connections: int = 0
    client_connections_opened: int = 0
    # Elicitation, sampling and roots requests that were sent to clients.
    server_requests: int = 0
    streams_resumed: int = 0
    tools_left_out: dict[str, str] = {}
    calls: int = 0
    errors: int = 0
    restarts: int = 0
    ignored_messages: int = 0
    # Why it is disabled, or why its entry in the configuration is rejected.
    reason: str | None = None
    last_error: str | None = None
    next_attempt_seconds: float | None = None
    pid: int | None = None
    stderr_tail: tuple[str, ...] = ()
