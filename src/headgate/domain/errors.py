"""Every deliberate error: a stable code, whether anything happened, and what to do next."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.redaction import cleaned, without_secrets

# Of what others said, in an error that a client gets to read.
LONGEST_QUOTE = 200
# Of why a server is down, with its last lines on stderr.
LONGEST_CAUSE = 600
_MOST_READ = 16 * 1024
# Of those who may have been meant.
_MOST_LISTED = 20
_RECOVER = "the operator stops the gateway, runs `headgate operations recover` and decides what it lists"


class Effect(StrEnum):
    """What may have happened upstream when a call failed."""

    NONE = "none"
    UNKNOWN = "unknown"
    DONE = "done"


class HeadgateError(Exception):
    """The root of the tree; `str(error)` is the sentence that says what is wrong."""

    code: ClassVar[str] = "INTERNAL"
    number: ClassVar[int] = 1099
    http_status: ClassVar[int] = 500
    # Both of all errors of a class, unless one of them knows better.
    retryable: bool = False
    effect: Effect = Effect.NONE

    def __init__(self, message: str, *, hint: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after_seconds = retry_after_seconds
        # What the ledger knows of the call, and how often it was tried; None for a plain call.
        self.delivery_status: DeliveryStatus | None = None
        # A text block that a model reads after the sentence, such as the schema of a tool; empty for none.
        self.details = ""

    @property
    def sentence(self) -> str:
        """What a model gets to read: what is wrong, and what to do."""
        return f"{self.message}; {self.hint}."

    @property
    def told(self) -> dict[str, object]:
        """What goes beside the sentence: what went wrong, whether anything happened, and what to do."""
        told: dict[str, object] = {"code": self.code, "effect": self.effect, "retryable": self.retryable}
        if self.retry_after_seconds is not None:
            told["retry_after_seconds"] = round(self.retry_after_seconds, 3)
        told["hint"] = cleaned(self.hint)
        return told


def quoted(text: str, longest: int = LONGEST_QUOTE) -> str:
    """What somebody else said, as much of it as belongs into a sentence; the log has the rest."""
    # Before it is cut: half a secret is not known as one any more.
    text = without_secrets(text[:_MOST_READ])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class InternalError(HeadgateError):
    """A bug of ours: the client learns the id of the log entry and nothing else."""

    effect = Effect.UNKNOWN

    def __init__(self, entry: str) -> None:
        super().__init__(
            f"internal error {entry}",
            hint=f"look for {entry} in the gateway's log and report it",
        )


class ConfigError(HeadgateError):
    """A configuration that cannot be used; the message says where and what is allowed."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400


class InvalidArguments(HeadgateError):
    """An own tool of the gateway was called wrongly; the message names the argument and what is allowed."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400

    def __init__(self, tool: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{tool}: {problem}", hint=hint)


class UnknownArgument(InvalidArguments):
    """A call of an own tool has a member that the tool does not have; nothing was called or dropped."""

    def __init__(self, message: str, *, hint: str, target: str = "") -> None:
        """`target` is the tool that the call names, whose arguments the member may have been meant for."""
        HeadgateError.__init__(self, message, hint=hint)
        self.target = target


class UpstreamError(HeadgateError):
    """A call did not get its answer from the upstream; `effect` says what may have happened."""

    # Whether the upstream may still be at it, so that what has not happened yet may happen later.
    at_work: bool = False


class UpstreamTimeout(UpstreamError):
    """The upstream was asked and did not answer in time."""

    code = "TIMEOUT"
    number = 1001
    http_status = 504
    effect = Effect.UNKNOWN
    at_work = True

    def __init__(self, upstream: str, what: str, seconds: float) -> None:
        super().__init__(
            f"{upstream!r} did not answer {what!r} within {seconds:.3g} s, so it may have been carried out",
            hint=f"check whether it was before trying again, or raise the timeout of {upstream!r}",
        )


class UpstreamUnreachable(UpstreamError):
    """The upstream could not be reached; nothing was sent."""

    code = "CONNECTION_ERROR"
    number = 1002
    http_status = 502
    retryable = True

    def __init__(self, upstream: str, reason: str, *, retry_after_seconds: float | None = None) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} could not be reached: {quoted(reason, LONGEST_CAUSE)}",
            hint="try again; if it persists, check the server's command or URL",
            retry_after_seconds=retry_after_seconds,
        )


class UpstreamLost(UpstreamError):
    """The connection ended after the call was sent and before it was answered."""

    code = "NETWORK_ERROR"
    number = 1003
    http_status = 502
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, what: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} was lost while it worked on {what!r} ({quoted(reason, LONGEST_CAUSE)}), "
            "so it may have been carried out",
            hint="check whether it was carried out before trying again",
        )


class GatewayEnding(HeadgateError):
    """The gateway ended before the call was answered."""

    code = "NETWORK_ERROR"
    number = 1003
    http_status = 503
    effect = Effect.UNKNOWN

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the gateway ended while {what[:200]!r} was under way, so it may have been carried out",
            hint="check whether it was carried out before trying again, "
            "or send the same call with the same idempotency key if it had one",
        )


class UpstreamUnavailable(UpstreamError):
    """The upstream is starting, restarting or resting after failures; nothing was sent."""

    code = "TEMPORARY_FAILURE"
    number = 1004
    http_status = 503
    retryable = True

    def __init__(self, upstream: str, reason: str, *, retry_after_seconds: float) -> None:
        super().__init__(
            f"{upstream!r} is not available: {quoted(reason, LONGEST_CAUSE)}",
            hint=f"try again in {retry_after_seconds:.1f} s; the other servers work",
            retry_after_seconds=retry_after_seconds,
        )


class Exhausted(HeadgateError):
    """A queue or a memory limit is full; nothing was sent."""

    code = "RESOURCE_EXHAUSTED"
    number = 1005
    http_status = 503
    retryable = True

    def __init__(self, what: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(what, hint="try again later", retry_after_seconds=retry_after_seconds)


class TooManySubscriptions(Exhausted):
    """A client may not subscribe to one more resource; nothing was sent."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"the subscription is refused: {reason}")
        self.hint = hint


class InputRequestWithdrawn(HeadgateError):
    """A call ended while its server waited for input of the client, because others needed the place.

    Not an UpstreamError: the server did nothing wrong, and another attempt would only ask again.
    """

    code = "RESOURCE_EXHAUSTED"
    number = 1005
    http_status = 503
    # The server may have begun before it asked.
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, reason: str) -> None:
        super().__init__(
            f"the call ended before {upstream!r} got the input that it asked its client for: {reason}",
            hint="check whether it was carried out, then call again and answer sooner",
        )


class RateLimited(HeadgateError):
    """The operator's limit for a server or a tool is used up; nothing was sent."""

    code = "RATE_LIMIT"
    number = 1006
    http_status = 429
    retryable = True

    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        super().__init__(
            f"{what} is called too often",
            hint=f"try again in {retry_after_seconds:.1f} s",
            retry_after_seconds=retry_after_seconds,
        )


class KeyReused(HeadgateError):
    """An idempotency key that names another call; nothing was sent."""

    code = "CONFLICT"
    number = 1007
    http_status = 422

    def __init__(self, key: str, difference: str) -> None:
        super().__init__(
            f"the idempotency key {key[:200]!r} was used before with {difference}",
            hint="use a new key for a new call, and the same arguments to repeat one",
        )


class StepReused(HeadgateError):
    """A step of a transaction that was made before as another call; nothing was sent."""

    code = "CONFLICT"
    number = 1007
    http_status = 422

    def __init__(self, transaction: str, step: int, difference: str) -> None:
        super().__init__(
            f"step {step} of transaction {transaction[:100]!r} was made before with {difference}",
            hint="send the same call to repeat a step, and a new one under the next number or a new key",
        )


class StillRunning(HeadgateError):
    """The first call with this key is under way for longer than the caller waits."""

    code = "IN_PROGRESS"
    number = 1008
    http_status = 409
    retryable = True
    # Nothing by this call; what the first one does is not known yet.
    effect = Effect.UNKNOWN

    def __init__(self, what: str, op_id: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(
            f"{what!r} is still being carried out for the first call with this key (operation {op_id})",
            hint="send the same call with the same key again later, or ask get_operation",
            retry_after_seconds=retry_after_seconds,
        )


class InDoubt(HeadgateError):
    """The first call with this key may have been carried out; it is not sent again."""

    code = "IN_DOUBT"
    number = 1009
    http_status = 409
    effect = Effect.UNKNOWN

    def __init__(self, what: str, op_id: str) -> None:
        super().__init__(
            f"the first call of {what!r} with this key may have been carried out (operation {op_id}), "
            "so it is not sent again",
            hint="check whether it was, then settle it with resolve_operation; "
            'or repeat it with "on_doubt": "retry" if a second time does no harm',
        )


class SequenceBroken(HeadgateError):
    """A step of a transaction that is not the next one; nothing was sent."""

    code = "SEQUENCE_ERROR"
    number = 1010
    http_status = 409

    def __init__(self, transaction: str, expected: int, received: int) -> None:
        self.expected = expected
        self.received = received
        super().__init__(
            f"transaction {transaction[:100]!r} expected step {expected} and received {received}",
            hint=f"send step {expected} first",
        )


class TransactionFailed(HeadgateError):
    """A step or a compensation failed, or the transaction does not allow what was asked."""

    code = "TRANSACTION_ERROR"
    number = 1011
    http_status = 409

    def __init__(self, message: str, *, hint: str, effect: Effect = Effect.NONE) -> None:
        super().__init__(message, hint=hint)
        self.effect = effect


class LedgerAway(HeadgateError):
    """The ledger cannot be written, so a call that must not happen twice is not sent; READ calls go on."""

    code = "SERVICE_UNAVAILABLE"
    number = 1062
    http_status = 503
    retryable = True

    def __init__(self, reason: str, *, effect: Effect = Effect.NONE, damaged: bool = False) -> None:
        """A damaged ledger refuses calls until the operator decides."""
        said = {
            Effect.NONE: "so the call was not sent",
            Effect.DONE: "so the answer of a call that was carried out is lost",
            Effect.UNKNOWN: "and whether the call was carried out is not known",
        }
        super().__init__(
            f"the ledger {'is damaged' if damaged else 'cannot be written'} ({reason}), {said[effect]}",
            hint=_RECOVER if damaged else "free disk space or mend the data directory, then try again",
            retry_after_seconds=None if damaged else 5.0,
        )
        self.effect = effect
        self.retryable = effect is Effect.NONE and not damaged


class AnswerNotKept(HeadgateError):
    """The call with this key was carried out before, and the ledger does not keep its answer any more."""

    code = "RESULT_NOT_FOUND"
    number = 1032
    http_status = 404
    effect = Effect.DONE

    def __init__(self, tool: str, op_id: str) -> None:
        super().__init__(
            f"the first call of {tool!r} with this key was carried out (operation {op_id}), so it is not "
            "sent again, and its answer is no longer kept",
            hint="ask the server for its outcome; a larger ledgerMaxBytes keeps answers longer",
        )


class TransferNotFound(HeadgateError):
    """No result is handed over in parts under this id to this caller: unknown and another's are the same."""

    code = "RESULT_NOT_FOUND"
    number = 1032
    http_status = 404

    def __init__(self, transfer_id: str) -> None:
        super().__init__(
            f"Transfer {transfer_id[:100]!r} not found or expired",
            hint="ask get_operation if the call was recorded; make any other again only if that does no harm",
        )


class OperationNotFound(HeadgateError):
    """No operation has this id for this caller: unknown, expired and another's are the same."""

    code = "RESULT_NOT_FOUND"
    number = 1032
    http_status = 404

    def __init__(self, op_id: str) -> None:
        super().__init__(
            f"Operation {op_id[:100]!r} not found or expired",
            hint="the op_id of a recorded call is in the _meta of its answer",
        )


class NotProcessed(UpstreamError):
    """The upstream said with a NACK that it did not process the call; nothing happened."""

    code = "TEMPORARY_FAILURE"
    number = 1004
    http_status = 503

    def __init__(self, upstream: str, what: str, code: str) -> None:
        self.upstream_code = code
        super().__init__(
            f"{upstream!r} did not accept {what!r} ({quoted(code) or 'without a reason'})",
            hint="look at the code that it gave, and try again if that may help",
        )


class UpstreamUnsure(UpstreamError):
    """The upstream is a gateway itself, and does not know what became of the call."""

    code = "NETWORK_ERROR"
    number = 1003
    http_status = 502
    effect = Effect.UNKNOWN
    at_work = True

    def __init__(self, upstream: str, what: str, code: str) -> None:
        super().__init__(
            f"{upstream!r} does not know what became of {what!r} ({quoted(code) or 'without a reason'}), "
            "so it may have been carried out",
            hint="check whether it was carried out before trying again",
        )


class BrokenTransfer(HeadgateError):
    """A chunk of a large result does not match its hash; the call itself was carried out."""

    code = "INTEGRITY_ERROR"
    number = 1014
    http_status = 502
    retryable = True
    effect = Effect.DONE

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} does not match its sha-256", hint="fetch that part again")


class InvalidAnswer(UpstreamError):
    """The upstream answered with something that is not a message of the protocol."""

    code = "INVALID_MESSAGE"
    number = 1012
    http_status = 502
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, what: str, reason: str) -> None:
        super().__init__(
            f"{upstream!r} answered {what!r} with {quoted(reason)}, so it may have been carried out",
            hint=f"report it to the authors of {upstream!r}",
        )


class AnswerNotStored(UpstreamError):
    """The upstream answered, and the answer is too large for memory and cannot be written to disk."""

    code = "SERVICE_UNAVAILABLE"
    number = 1062
    http_status = 503
    effect = Effect.DONE

    def __init__(self, upstream: str, what: str, reason: str, *, effect: Effect = Effect.DONE) -> None:
        self.reason = f"its large answer could not be written to disk ({reason})"
        said = "was carried out" if effect is Effect.DONE else "may have been carried out"
        super().__init__(
            f"{upstream!r} answered {what!r}, but the answer is large and could not be written to disk "
            f"({reason}), so it is lost; the call {said}",
            hint="free disk space or make the data directory writable, and do not repeat "
            "a call that must not happen twice",
        )
        self.effect = effect


class VersionMismatch(UpstreamError):
    """The upstream speaks no protocol version that we speak."""

    code = "VERSION_MISMATCH"
    number = 1013
    http_status = 400

    def __init__(self, upstream: str, theirs: str) -> None:
        super().__init__(
            f"{upstream!r} speaks {theirs}, which this gateway does not",
            hint="update the gateway or the server",
        )


class UpstreamRefused(UpstreamError):
    """The upstream refused the gateway's credentials or its request; nothing happened."""

    code = "AUTH_INVALID"
    number = 1021
    http_status = 401

    def __init__(self, upstream: str, status: int) -> None:
        super().__init__(
            f"{upstream!r} refused the gateway with HTTP {status}",
            hint=f"check the headers configured for {upstream!r}",
        )


class RequestRefused(UpstreamError):
    """The upstream refused the request as such; nothing happened."""

    code = "CONNECTION_ERROR"
    number = 1002
    http_status = 502

    def __init__(self, upstream: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} refused the request: {quoted(reason)}", hint="check the server's URL and headers"
        )


class UpstreamBusy(UpstreamError):
    """The upstream says that it is asked too often; nothing happened."""

    code = "RATE_LIMIT"
    number = 1006
    http_status = 429
    retryable = True

    def __init__(self, upstream: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"{upstream!r} is asked too often",
            hint=f"try again in {retry_after_seconds:g} s",
            retry_after_seconds=retry_after_seconds,
        )


class GatewayLoop(UpstreamError):
    """The upstream is this gateway, or a gateway that leads back to it; it is not connected."""

    code = "CONNECTION_ERROR"
    number = 1002
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
        # What an operator reads of the server.
        self.reason = f"{message}; {hint}"


class ServerNotFound(HeadgateError):
    """No server has this name; the nearest names are given."""

    code = "SERVER_NOT_FOUND"
    number = 1031
    http_status = 404

    def __init__(self, name: str, nearest: list[str], *, finder: str = "tools/list shows all") -> None:
        super().__init__(f"Unknown server: {name[:200]!r}", hint=f"{_similar('server', nearest)}; {finder}")


class ServerNotRunning(HeadgateError):
    """The configuration has the server, and its entry says that it does not run or is wrong."""

    code = "SERVER_NOT_FOUND"
    number = 1031
    http_status = 404

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"Server {name[:200]!r} does not run: {quoted(reason, LONGEST_CAUSE)}",
            hint="correct its entry in the configuration; the other servers work",
        )


class ToolNotFound(HeadgateError):
    """No tool has this name for this caller; the nearest names are given."""

    code = "TOOL_NOT_FOUND"
    number = 1030
    http_status = 404

    def __init__(self, name: str, nearest: list[str], *, finder: str = "tools/list shows all") -> None:
        self.name = name
        self.nearest = nearest
        super().__init__(f"Unknown tool: {name[:200]!r}", hint=f"{_similar('tool', nearest)}; {finder}")


class SchemaNotFound(HeadgateError):
    """No tool has this name for this caller, so there is no schema to expand; the nearest names are given."""

    code = "TOOL_NOT_FOUND"
    number = 1030
    http_status = 404

    def __init__(self, name: str, nearest: list[str]) -> None:
        shown = name[:200]
        # With escapes for what a terminal would act on.
        message = f"Schema not found for tool: {shown if shown.isprintable() else ascii(shown)[1:-1]}"
        if nearest:
            message += f"; nearest: {', '.join(nearest)}"
        super().__init__(message, hint="give the name of a tool as it is listed or found")


class ExpansionRefused(HeadgateError):
    """expandSchema was called wrongly; the message is the whole sentence that a model gets to read."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400

    def __init__(self, message: str) -> None:
        super().__init__(message, hint='call it with {"toolName": "a tool"}, or with a path as well')


class ResultNotFound(HeadgateError):
    """No result is stored under this id for this caller: unknown, expired and another's are the same."""

    code = "RESULT_NOT_FOUND"
    number = 1032
    http_status = 404

    def __init__(self, cache_id: str) -> None:
        super().__init__(
            f"Cache entry {cache_id[:100]!r} not found or expired",
            hint="Re-call the original tool to get a new cache_id",
        )

    @property
    def sentence(self) -> str:
        """Two sentences, which clients know word for word."""
        return f"{self.message}. {self.hint}."


class WorkStopped(HeadgateError):
    """A job on a stored result took too long or too much, and was stopped; the result is still there."""

    code = "TIMEOUT"
    number = 1001
    http_status = 504

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this took too long (of the processor, or {seconds:g} s in all) or too much memory",
            hint="ask for less: a smaller part by path, a simpler pattern, or fewer rows",
        )


class PromptNotFound(HeadgateError):
    """No prompt has this name for this caller; the nearest names are given."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 404

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__(f"Unknown prompt: {name[:200]!r}", hint=_nearest("prompt", nearest))


class ResourceNotFound(HeadgateError):
    """No server has a resource of this URI for this caller."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 404

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"Resource not found: {uri[:500]!r}",
            hint="resources/list and resources/templates/list show all; headgate://SERVER/URI names a server",
        )


class ReminderRefused(HeadgateError):
    """A `requestState` that cannot be accepted; nothing happened."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the requestState is refused: {reason}", hint="send the request again without it to start over"
        )


class HeaderMismatch(HeadgateError):
    """A header that repeats an argument says something else than the argument; nothing happened."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="send in each Mcp-Param header what the body says")


class MethodUnknown(HeadgateError):
    """A method that neither the gateway nor any one server is known to have."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 404

    def __init__(self, method: str, servers: int) -> None:
        reason = "several servers could be meant" if servers > 1 else "no server is there"
        super().__init__(
            f"Method not found: {method[:200]} ({reason})",
            hint='name the server in _meta, as "io.headgate/server"',
        )


def _nearest(kind: str, names: list[str]) -> str:
    return f"{_similar(kind, names)}; {kind}s/list shows all"


def _similar(kind: str, names: list[str]) -> str:
    return f"nearest: {', '.join(names)}" if names else f"no {kind} has a similar name"


class EmbedderUnavailable(HeadgateError):
    """The texts got no vectors now; search goes on with words alone."""

    code = "TEMPORARY_FAILURE"
    number = 1004
    http_status = 503
    retryable = True

    def __init__(self, name: str, reason: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(
            f"the embedder {name!r} made no vectors: {reason}",
            hint="search goes on with words alone; vectors follow when the embedder answers again",
            retry_after_seconds=retry_after_seconds,
        )


class KnowledgeError(HeadgateError):
    """Something about the team's documents; the message is the whole sentence, word for word."""

    def __init__(
        self, message: str, *, hint: str, retry_after_seconds: float | None = None, hinted: bool = False
    ) -> None:
        """`hinted` says that the hint tells more than the message."""
        super().__init__(message, hint=hint, retry_after_seconds=retry_after_seconds)
        self.hinted = hinted

    @property
    def sentence(self) -> str:
        """What a model gets to read."""
        return self.message

    @property
    def advice(self) -> str:
        """What it gets to read after the sentence; empty where that says it all."""
        return f"{self.hint[:1].upper()}{self.hint[1:].removesuffix('.')}." if self.hinted else ""


class InvalidQuestion(KnowledgeError):
    """An argument of a knowledge tool that cannot be used; the message says what is allowed."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400


class QueryTooLong(KnowledgeError):
    """A query with more characters than are taken."""

    code = "QUERY_TOO_LONG"
    number = 1041
    http_status = 400

    def __init__(self, longest: int) -> None:
        super().__init__(
            f"Query too long (max {longest})", hint=f"shorten the query to {longest} characters or fewer"
        )


class VendorNotFound(KnowledgeError):
    """No entity has this name or alias."""

    code = "VENDOR_NOT_FOUND"
    number = 1050
    http_status = 404

    def __init__(self, name: str, nearest: list[str], other: "Match | None" = None) -> None:
        """`other` is somebody of that name who is no vendor."""
        hint = f"names like it: {', '.join(nearest)}" if nearest else "search for it with semantic_search"
        if other is not None:
            article = "an" if other.type[:1].upper() in set("AEIOU") else "a"
            hint = f"'{other.name}' is {article} {other.type}, not a vendor: use neighbours"
        super().__init__(
            f"Vendor '{name}' not found. Try using semantic_search first to find exact vendor names and IDs "
            "in the knowledge graph.",
            hint=hint,
            hinted=bool(nearest) or other is not None,
        )
        self.nearest = nearest


class Match(NamedTuple):
    """One of several who may be meant, with what tells it apart from the others."""

    id: int
    name: str
    type: str
    # The id that an import gave it.
    external_id: str = ""
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        known = [self.type, f"id {self.id}"]
        known += [self.external_id] if self.external_id else []
        known += [f"also '{alias}'" for alias in self.aliases]
        known += [f"{name}: {value}" for name, value in self.attributes.items()]
        return f"'{self.name}' ({', '.join(known)})"


class VendorAmbiguous(KnowledgeError):
    """Several entities have this name or alias; they are listed and none is guessed."""

    code = "VENDOR_AMBIGUOUS"
    number = 1051
    http_status = 409

    def __init__(self, name: str, matches: list[Match]) -> None:
        listed, choice = _listed([str(match) for match in matches]), _choice(matches, "vendor_name")
        super().__init__(
            f"Vendor '{name}' is ambiguous: {len(matches)} matches: {listed}. Call again with {choice}.",
            hint=f"call again with {choice}",
        )
        self.matches = matches[:_MOST_LISTED]


class EntityAmbiguous(KnowledgeError):
    """Several entities of any type have this name or alias; they are listed and none is guessed."""

    code = "VENDOR_AMBIGUOUS"
    number = 1051
    http_status = 409

    def __init__(self, name: str, matches: list[Match]) -> None:
        listed, choice = _listed([str(match) for match in matches]), _choice(matches, "entity")
        super().__init__(
            f"Entity '{name}' is ambiguous: {len(matches)} matches: {listed}. Call again with {choice}.",
            hint=f"call again with {choice}",
        )
        self.matches = matches[:_MOST_LISTED]


def _choice(matches: list[Match], argument: str) -> str:
    """What names one of them; with the word before it, an id cannot be taken for one of an import."""
    return f"the id of the one that is meant as {argument}, such as 'id {matches[0].id}'"


def _listed(matches: list[str]) -> str:
    """As many as somebody may want to choose from."""
    more = len(matches) - _MOST_LISTED
    return ", ".join(matches[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


class EntityNotFound(KnowledgeError):
    """No entity or chunk has this name or id."""

    code = "RESULT_NOT_FOUND"
    number = 1032
    http_status = 404

    def __init__(self, message: str, *, hint: str, nearest: Sequence[str] = ()) -> None:
        """`nearest` are names that may have been meant."""
        hint = f"names like it: {', '.join(nearest)}" if nearest else hint
        super().__init__(message, hint=hint, hinted=bool(nearest))
        self.nearest = list(nearest)


class BudgetSpent(KnowledgeError):
    """The caller's tokens of the day do not suffice for this answer."""

    code = "RATE_LIMIT"
    number = 1006
    http_status = 429
    retryable = True

    def __init__(
        self, left: int, total: int, needed: int, *, hint: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(
            f"Not enough of the token budget: {left} of {total} tokens are left for the next 24 hours "
            f"and this answer may take {needed}; {hint}",
            hint=hint,
            retry_after_seconds=retry_after_seconds,
        )
        # Without a time there is nothing to wait for: a whole day's tokens are too few.
        self.retryable = retry_after_seconds is not None


class StoreUnavailable(KnowledgeError):
    """The store of the documents cannot be had now; why is in the log, and in `why` for operators."""

    code = "DB_CONNECTION"
    number = 1060
    http_status = 503
    retryable = True

    def __init__(self, why: str = "", *, retry_after_seconds: float = 5.0) -> None:
        """`why` is what is wrong and what to do, in one sentence without a secret; nobody else is told."""
        self.why = why
        super().__init__(
            f"Database unavailable, retry in {retry_after_seconds:.0f}s",
            hint=f"retry in {retry_after_seconds:.0f} seconds",
            retry_after_seconds=retry_after_seconds,
        )


class SearchFailed(KnowledgeError):
    """A search that ended in an error of ours; the log has it under `entry`."""

    code = "SEARCH_FAILED"
    number = 1061
    http_status = 503
    retryable = True

    def __init__(self, entry: str) -> None:
        super().__init__(
            f"Search failed, retry in 5s or look for {entry} in the log",
            hint="retry in 5 seconds; if it persists, report it with the entry of the log",
            retry_after_seconds=5.0,
        )


class VectorsUnavailable(KnowledgeError):
    """A search by meaning alone that cannot be made now; the message says what to do instead."""

    code = "SERVICE_UNAVAILABLE"
    number = 1062
    http_status = 503
    retryable = True

    def __init__(self, reason: str, remedy: str, *, retry_after_seconds: float = 5.0) -> None:
        super().__init__(
            f"Strategy 'vector' is unavailable: {reason}. Use strategy 'bm25' or 'hybrid', or {remedy}.",
            hint=f"use strategy 'bm25' or 'hybrid', or {remedy}",
            retry_after_seconds=retry_after_seconds,
        )


class InvalidGraph(KnowledgeError):
    """A file of entities and relationships that cannot be imported; the message says where and why."""

    code = "INVALID_PARAMS"
    number = 1040
    http_status = 400


class UncertainEnd(NamedTuple):
    """An end of a relationship of an import that fits nobody, or several."""

    # Of the relationship among those that were imported, from 1.
    row: int
    # The whole relationship in words, and the end as it was given.
    relationship: str
    end: str
    fitting: int

    def __str__(self) -> str:
        found = f"{self.end!r} fits {self.fitting} entities"
        return f"({self.relationship}): {found if self.fitting else f'no entity is called {self.end!r}'}"


class UncertainEnds(InvalidGraph):
    """Relationships of an import whose ends are not certain."""

    def __init__(self, ends: Sequence[UncertainEnd], file: str = "", lines: Sequence[int] = ()) -> None:
        """`lines` has the line of the file on which each relationship begins, where that is known."""
        self.ends = tuple(ends)
        places = [
            f"line {lines[end.row - 1]}" if end.row <= len(lines) else f"relationship {end.row}"
            for end in self.ends
        ]
        told = [f"{place} {end}" for place, end in zip(places, self.ends, strict=True)]
        what = f"{file}, {told[0]}" if file else f"{told[0][:1].upper()}{told[0][1:]}"
        if len(told) > 1:
            what = f"{file or 'The graph'} has {len(told)} ends of relationships that are not certain: "
            what += _listed(told)
        advice = " ".join(_ADVICE[several] for several in sorted({end.fitting > 0 for end in self.ends}))
        super().__init__(
            # Another file of the same command may have been.
            f"{what}. {advice} Nothing {f'of {file} ' if file else ''}was imported.",
            hint=f"{advice[:1].lower()}{advice[1:].rstrip('.')}",
        )


# Where an end fits nobody, and where it fits several.
_ADVICE: Final = {
    False: "Add it to the entities that are imported, or give the name, alias or id of one that is known.",
    True: "Give the external id of the one that is meant, or a name that no other has.",
}
