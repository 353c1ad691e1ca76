"""One upstream server as its operator defined it, and the state it is in."""

from enum import StrEnum

import msgspec

from headgate.domain.care import PLAIN_CARE, ServerCare
from headgate.domain.listing import PLAIN_CURATION, Curation


class Transport(StrEnum):
    """How an upstream is reached."""

    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable-http"
    SSE = "sse"
    BUILTIN = "builtin"


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one upstream; equal specs need no reconnection."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    builtin: str = ""
    enabled: bool = True
    # One call, from the moment it is sent; progress from the upstream starts it anew.
    timeout_seconds: float = 60.0
    # One call, whatever the progress.
    max_timeout_seconds: float = 900.0
    # TCP and TLS, apart from the time that the answer takes.
    connect_timeout_seconds: float = 10.0
    # Connections besides the main one, for clients that the server may ask something.
    max_connections: int = 32
    # Whether everybody shares the main connection, on which no client can be asked anything.
    shared: bool = False
    # From spawning or connecting to the end of the handshake.
    start_timeout_seconds: float = 60.0
    # How its tools are shown.
    curation: Curation = PLAIN_CURATION
    # How its calls are carried.
    care: ServerCare = PLAIN_CARE
    # Started with its first call only, and stopped again when it was not used for so long; None is never.
    cold: bool = False
    idle_timeout_seconds: float | None = None
    # How often in a row it may fail to start before only a call starts it again.
    max_restarts: int = 20


class State(StrEnum):
    """Where an upstream is in its life, as `/ready` and the console show it."""

    DISABLED = "disabled"
    STARTING = "starting"
    READY = "ready"
    # Lost or never reached, and the next attempt is scheduled; or it says itself that it cannot do its work.
    BACKOFF = "backoff"
    # Failed to start as often as it may; the next use starts it again.
    FAILED = "failed"
    # Stopped until it is used.
    IDLE = "idle"
    STOPPED = "stopped"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator sees of one upstream."""

    name: str
    transport: Transport
    state: State
    protocol_version: str | None = None
    tools: int = 0
    prompts: int = 0
    resources: int = 0
    templates: int = 0
    # Connections besides the main one.
    lines: int = 0
    lines_opened: int = 0
    # Put to clients.
    questions: int = 0
    streams_resumed: int = 0
    tools_left_out: dict[str, str] = {}
    calls: int = 0
    errors: int = 0
    restarts: int = 0
    noise_lines: int = 0
    last_error: str | None = None
    next_attempt_seconds: float | None = None
    pid: int | None = None
    stderr_tail: tuple[str, ...] = ()
