"""Delivery policy of one upstream and of its tools: safety class, retry, breaker, rate and concurrency
limits.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from headgate.domain.wildcards import matches_any


class ToolClass(StrEnum):
    """The effect of a second call with the same arguments, which decides what may follow a lost answer."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    # The server takes a key, and carries out one call for each.
    KEYED = "keyed"
    # Another tool reports whether it happened.
    PROBEABLE = "probeable"
    UNSAFE = "unsafe"

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when its outcome is unknown."""
        return self in (ToolClass.READ, ToolClass.IDEMPOTENT, ToolClass.KEYED)


class Priority(StrEnum):
    """Who goes first where calls have to wait."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Probe(msgspec.Struct, frozen=True):
    """How to ask whether a call has happened: a tool of the same server, and its arguments as JSON.

    A text in them of the form `$arguments.a.b`, `$key` or `$op_id` stands for that of the call.
    """

    tool: str
    arguments: bytes = b"{}"
    # Where in the answer it says so: a member of its structured content or JSON text, which is true or false.
    # Empty: it happened if the answer is JSON and not nothing. An error, or text that is no
    # JSON, decides nothing.
    happened: str = ""
    # How long after a lost connection the word that it did not happen is believed; None is as long as one
    # call may take, because the server may go on after the connection is lost.
    settle_seconds: float | None = 1.0


class Rate(msgspec.Struct, frozen=True):
    """A bucket of tokens: one is taken by each call."""

    per_second: float
    burst: int = 1


class ToolSafety(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery settings of one tool; those of the server replace None and empty values."""

    kind: ToolClass | None = None
    # Where the server takes a key: an argument of its tools, or a header of HTTP.
    key_argument: str = ""
    key_header: str = ""
    # How long the server remembers one.
    key_window_seconds: float | None = None
    probe: Probe | None = None
    ledger: Literal["keyed", "all"] | None = None
    priority: Priority | None = None
    rate: Rate | None = None
    # The longest that one call may take, every attempt together.
    timeout_seconds: float | None = None


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is tried, and how long is waited in between: full jitter up to a growing bound."""

    attempts: int = 3
    base_seconds: float = 0.2
    longest_seconds: float = 5.0


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a server that fails is left alone, and for how long at first."""

    failures: int = 5
    rest_seconds: float = 30.0


class UpstreamPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How calls of one server are carried, and those of some of its tools."""

    all: ToolSafety = ToolSafety()
    # By the tool's name at the server, in which a * stands for anything; the first that fits.
    tools: dict[str, ToolSafety] = {}
    trusts_annotations: bool = True
    retry_settings: RetrySettings = RetrySettings()
    breaker_settings: BreakerSettings = BreakerSettings()
    # The most calls at a time, and the most that wait.
    window: int = 1024
    queue: int = 1024

    def for_tool(self, tool: str) -> ToolSafety:
        """The settings of one tool, completed by those of all tools."""
        own = next((policy for name, policy in self.tools.items() if matches_any(tool, (name,))), None)
        if own is None:
            return self.all
        settings = {
            field: value
            for field in ToolSafety.__struct_fields__
            if (value := getattr(own, field)) not in (None, "")
        }
        return msgspec.structs.replace(self.all, **settings)

    @property
    def is_default(self) -> bool:
        return self.all == _DEFAULT_TOOL_SAFETY and not self.tools


_DEFAULT_TOOL_SAFETY = ToolSafety()
DEFAULT_UPSTREAM_POLICY = UpstreamPolicy()
