"""Every deliberate error: a stable code, whether anything happened, and what to do next."""

from enum import StrEnum
from typing import ClassVar, Final

from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.redaction import redact, redact_secrets

# The longest quotation of a foreign message in an error for a client.
MAX_QUOTE = 200
# Of why a server is down, with its last lines on stderr.
MAX_CAUSE = 600
_MOST_READ = 16 * 1024


class Effect(StrEnum):
    """The possible effect of a failed call at the upstream."""

    NONE = "none"
    UNKNOWN = "unknown"
    DONE = "done"


# Every code that an error of any package has, with its number in JSON-RPC and its HTTP status; a test
# compares it with the classes.
ERROR_CODES: Final = {
    "TIMEOUT": (1001, 504),
    "CONNECTION_ERROR": (1002, 502),
    "NETWORK_ERROR": (1003, 502),
    "TEMPORARY_FAILURE": (1004, 503),
    "RESOURCE_EXHAUSTED": (1005, 503),
    "RATE_LIMIT": (1006, 429),
    "CONFLICT": (1007, 422),
    "IN_PROGRESS": (1008, 409),
    "IN_DOUBT": (1009, 409),
    "SEQUENCE_ERROR": (1010, 409),
    "TRANSACTION_ERROR": (1011, 409),
    "INVALID_MESSAGE": (1012, 502),
    "VERSION_MISMATCH": (1013, 400),
    "INTEGRITY_ERROR": (1014, 502),
    "AUTH_INVALID": (1021, 401),
    "TOOL_NOT_FOUND": (1030, 404),
    "SERVER_NOT_FOUND": (1031, 404),
    "RESULT_NOT_FOUND": (1032, 404),
    "INVALID_PARAMS": (1040, 400),
    "QUERY_TOO_LONG": (1041, 400),
    "VENDOR_NOT_FOUND": (1050, 404),
    "VENDOR_AMBIGUOUS": (1051, 409),
    "DB_CONNECTION": (1060, 503),
    "SEARCH_FAILED": (1061, 503),
    "SERVICE_UNAVAILABLE": (1062, 503),
    "INTERNAL": (1099, 500),
}


class HeadgateError(Exception):
    """The root of the tree; `str(error)` is the message, one sentence."""

    code: ClassVar[str] = "INTERNAL"
    # Those of the code, unless a class has its own status.
    number: ClassVar[int] = 1099
    http_status: ClassVar[int] = 500
    # Both of all errors of a class, unless one of them knows better.
    retryable: bool = False
    effect: Effect = Effect.NONE

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            cls.number, status = ERROR_CODES[cls.code]
            cls.http_status = vars(cls).get("http_status", status)

    def __init__(self, message: str, *, hint: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after_seconds = retry_after_seconds
        # The record of the call and the number of attempts; None for a plain call.
        self.delivery_status: DeliveryStatus | None = None
        # A text block that a model reads after the sentence, such as the schema of a tool; empty for none.
        self.details = ""

    @property
    def sentence(self) -> str:
        """The text for a model: the message and the hint."""
        return f"{self.message}; {self.hint}."

    @property
    def error_data(self) -> dict[str, object]:
        """The machine-readable part: code, effect and hint."""
        data: dict[str, object] = {"code": self.code, "effect": self.effect, "retryable": self.retryable}
        if self.retry_after_seconds is not None:
            data["retry_after_seconds"] = round(self.retry_after_seconds, 3)
        data["hint"] = redact(self.hint)
        return data


def quoted(text: str, longest: int = MAX_QUOTE) -> str:
    """A foreign message, shortened for a sentence; the log has the whole of it."""
    # Before it is cut: half a secret is not known as one any more.
    text = redact_secrets(text[:_MOST_READ])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class InternalError(HeadgateError):
    """A bug of ours: the client learns the id of the log entry and nothing else."""

    effect = Effect.UNKNOWN

    def __init__(self, entry: str) -> None:
        super().__init__(
            f"internal error {entry}", hint=f"look for {entry} in the gateway's log and report it"
        )


class ConfigError(HeadgateError):
    """An invalid configuration; the message has the place and the allowed values."""

    code = "INVALID_PARAMS"


class InvalidArguments(HeadgateError):
    """Invalid arguments for a tool of the gateway; the message names the argument and the allowed values."""

    code = "INVALID_PARAMS"

    def __init__(self, tool: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{tool}: {problem}", hint=hint)


class UnknownArgument(InvalidArguments):
    """A call of an own tool has a member that the tool does not have; nothing was called or dropped."""

    def __init__(self, message: str, *, hint: str, target: str = "") -> None:
        """`target` is the tool that the call names, whose arguments the member may have been meant for."""
        HeadgateError.__init__(self, message, hint=hint)
        self.target = target


class UpstreamError(HeadgateError):
    """A call without an answer of the upstream; `effect` is what may have happened."""

    # Whether the upstream may still be at it, so that what has not happened yet may happen later.
    may_still_run: bool = False


class UpstreamTimeout(UpstreamError):
    code = "TIMEOUT"
    effect = Effect.UNKNOWN
    may_still_run = True

    def __init__(self, upstream: str, what: str, seconds: float) -> None:
        super().__init__(
            f"{upstream!r} did not answer {what!r} within {seconds:.3g} s, so it may have been carried out",
            hint=f"check whether it was before trying again, or raise the timeout of {upstream!r}",
        )


class UpstreamUnreachable(UpstreamError):
    """The upstream could not be reached; nothing was sent."""

    code = "CONNECTION_ERROR"
    retryable = True

    def __init__(self, upstream: str, reason: str, *, retry_after_seconds: float | None = None) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} could not be reached: {quoted(reason, MAX_CAUSE)}",
            hint="try again; if it persists, check the server's command or URL",
            retry_after_seconds=retry_after_seconds,
        )


class UpstreamLost(UpstreamError):
    """The connection ended after the call was sent and before it was answered."""

    code = "NETWORK_ERROR"
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, what: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} was lost while it worked on {what!r} ({quoted(reason, MAX_CAUSE)}), "
            "so it may have been carried out",
            hint="check whether it was carried out before trying again",
        )


class UpstreamUnavailable(UpstreamError):
    """The upstream is starting, restarting or resting after failures; nothing was sent."""

    code = "TEMPORARY_FAILURE"
    retryable = True

    def __init__(self, upstream: str, reason: str, *, retry_after_seconds: float) -> None:
        super().__init__(
            f"{upstream!r} is not available: {quoted(reason, MAX_CAUSE)}",
            hint=f"try again in {retry_after_seconds:.1f} s; the other servers work",
            retry_after_seconds=retry_after_seconds,
        )


class ResourceExhausted(HeadgateError):
    """A queue or a memory limit is full; nothing was sent."""

    code = "RESOURCE_EXHAUSTED"
    retryable = True

    def __init__(self, what: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(what, hint="try again later", retry_after_seconds=retry_after_seconds)


class RateLimited(HeadgateError):
    """The operator's limit for a server or a tool is used up; nothing was sent."""

    code = "RATE_LIMIT"
    retryable = True

    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        super().__init__(
            f"{what} is called too often",
            hint=f"try again in {retry_after_seconds:.1f} s",
            retry_after_seconds=retry_after_seconds,
        )


class InvalidUpstreamResponse(UpstreamError):
    """The upstream answered with something that is not a message of the protocol."""

    code = "INVALID_MESSAGE"
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, what: str, reason: str) -> None:
        super().__init__(
            f"{upstream!r} answered {what!r} with {quoted(reason)}, so it may have been carried out",
            hint=f"report it to the authors of {upstream!r}",
        )


class ResponseNotStored(UpstreamError):
    """The upstream answered, and the answer is too large for memory and cannot be written to disk."""

    code = "SERVICE_UNAVAILABLE"
    effect = Effect.DONE

    def __init__(self, upstream: str, what: str, reason: str, *, effect: Effect = Effect.DONE) -> None:
        self.reason = f"its large answer could not be written to disk ({reason})"
        outcome = "was carried out" if effect is Effect.DONE else "may have been carried out"
        super().__init__(
            f"{upstream!r} answered {what!r}, but the answer is large and could not be written to disk "
            f"({reason}), so it is lost; the call {outcome}",
            hint="free disk space or make the data directory writable, and do not repeat "
            "a call that must not happen twice",
        )
        self.effect = effect


class GatewayLoop(UpstreamError):
    """The upstream is this gateway, or a gateway that leads back to it; it is not connected."""

    code = "CONNECTION_ERROR"
    http_status = 508

    def __init__(self, upstream: str, *, itself: bool = False) -> None:
        """`itself` where there is no other gateway in between."""
        if itself:
            message = f"the server {upstream!r} is this gateway itself, so it is not connected"
            hint = "remove its entry from the configuration, or give it another server's command or URL"
        else:
            message = f"the server {upstream!r} leads back to this gateway (a loop), so it is not connected"
            hint = "remove its entry here, or the entry of the other gateway that leads here"
        super().__init__(message, hint=hint)
        # The reason, for operators.
        self.reason = f"{message}; {hint}"


class ResultNotFound(HeadgateError):
    """No result is stored under this id for this caller: unknown, expired and another's are the same."""

    code = "RESULT_NOT_FOUND"

    def __init__(self, cache_id: str) -> None:
        super().__init__(
            f"Cache entry {cache_id[:100]!r} not found or expired",
            hint="Re-call the original tool to get a new cache_id",
        )

    @property
    def sentence(self) -> str:
        """Two sentences, which clients know word for word."""
        return f"{self.message}. {self.hint}."


class WorkerLimitExceeded(HeadgateError):
    """A job on a stored result took too long or too much, and was stopped; the result is still there."""

    code = "TIMEOUT"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this took too long (of the processor, or {seconds:g} s in all) or too much memory",
            hint="ask for less: a smaller part by path, a simpler pattern, or fewer rows",
        )


class HeaderMismatch(HeadgateError):
    """A header differs from the argument that it repeats; nothing happened."""

    code = "INVALID_PARAMS"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="send in each Mcp-Param header what the body says")


class MethodNotFound(HeadgateError):
    """A method that neither the gateway nor any one server is known to have."""

    code = "INVALID_PARAMS"
    http_status = 404

    def __init__(self, method: str, servers: int) -> None:
        reason = "several servers could be meant" if servers > 1 else "no server is there"
        super().__init__(
            f"Method not found: {method[:200]} ({reason})",
            hint='name the server in _meta, as "io.headgate/server"',
        )


class EmbedderUnavailable(HeadgateError):
    """The texts got no vectors now; search goes on with words alone."""

    code = "TEMPORARY_FAILURE"
    retryable = True

    def __init__(self, name: str, reason: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(
            f"the embedder {name!r} made no vectors: {reason}",
            hint="search goes on with words alone; vectors follow when the embedder answers again",
            retry_after_seconds=retry_after_seconds,
        )


class KnowledgeError(HeadgateError):
    """Something about the team's documents; the message is the whole sentence, word for word."""

    # Whether an operator at a terminal reads the hint too.
    hint_for_operators: ClassVar[bool] = False

    def __init__(
        self, message: str, *, hint: str, retry_after_seconds: float | None = None, hinted: bool = False
    ) -> None:
        """`hinted` means that the hint says more than the message."""
        super().__init__(message, hint=hint, retry_after_seconds=retry_after_seconds)
        self.hinted = hinted

    @property
    def sentence(self) -> str:
        return self.message

    @property
    def advice(self) -> str:
        """The text after the message; empty where the message is complete."""
        return f"{self.hint[:1].upper()}{self.hint[1:].removesuffix('.')}." if self.hinted else ""


class StoreUnavailable(KnowledgeError):
    """The store of the documents cannot be had now; why is in the log, and in `why` for operators."""

    code = "DB_CONNECTION"
    retryable = True

    def __init__(self, why: str = "", *, retry_after_seconds: float = 5.0) -> None:
        """`why` is the cause and the fix in one sentence without a secret, for the operator alone."""
        self.why = why
        super().__init__(
            f"Database unavailable, retry in {retry_after_seconds:.0f}s",
            hint=f"retry in {retry_after_seconds:.0f} seconds",
            retry_after_seconds=retry_after_seconds,
        )


class StoreFailed(Exception):
    """The store failed; the message has the reason. Nothing has been recorded."""
