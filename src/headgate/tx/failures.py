"""Why one attempt failed, what may have happened at the server, and whether and when it is sent again."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.domain.errors import Effect, quoted
from headgate.domain.redaction import redact
from headgate.protocol.jsonrpc_errors import REJECTION_CODES
from headgate.protocol.rmcp import RETRYABLE
from headgate.tx.config import RetryPolicy
from headgate.tx.errors import TxError
from headgate.tx.rmcp import delivery_metadata_of

ERROR_META: Final = "io.headgate/error"
OPERATION_META: Final = "io.headgate/operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure:
    """Why one attempt brought no answer, or that the answer was an error."""

    code: str
    # In full, without secrets.
    message: str
    effect: Effect = Effect.UNKNOWN
    # Whether the peer said that another attempt may help, and not before when.
    retryable: bool = False
    retry_after_seconds: float | None = None
    # Whether nobody foresaw it.
    is_unknown: bool = False
    # Whether the message is a text from elsewhere.
    is_quoted: bool = False
    # Whether the server itself answered, with an error.
    is_answer: bool = False
    # What a peer that speaks rmcp says beside it: that it took the call, and had answered it before.
    ack: bool = False
    duplicate: bool = False
    # Whether a peer that keeps the key has on record that no attempt was carried out.
    is_recorded: bool = False

    @property
    def display_message(self) -> str:
        """The message as it stands in an error: a text from elsewhere is cut."""
        return quoted(self.message) if self.is_quoted else self.message


def timeout_failure(tool: str, timeout_ms: float, *, sent: bool) -> CallFailure:
    """No answer within the time of an attempt; it may not even have been sent."""
    if sent:
        message = f"no answer to {tool!r} within {timeout_ms:g} ms, so it may have been carried out"
        return CallFailure(code="TIMEOUT", message=message)
    message = f"{tool!r} waited {timeout_ms:g} ms for its turn and was not sent"
    return CallFailure(code="TIMEOUT", message=message, effect=Effect.NONE)


def doubt_failure(tool: str, key: str | None, is_repeat: bool) -> CallFailure:  # noqa: FBT001 - read as a fact
    """A call that may have been carried out, and the peer that is there now does not know its key."""
    if not is_repeat:
        message = f"the connection was lost while {tool!r} was under way, so it may have been carried out"
        return CallFailure(code="NETWORK_ERROR", message=message)
    message = (
        f"an earlier call of {tool!r} with the key {(key or '')[:200]!r} may have been carried out, so it is "
        'not sent again; check whether it was, or repeat it with on_doubt="retry" '
        "if a second time does no harm"
    )
    return CallFailure(code="IN_DOUBT", message=message)


# What the official SDK says of its own connection under a number that servers use too. It says so without
# data and in these words; any other error with the number is the answer of a server. A server in these words
# is one that was built with the SDK, was stopped or lost its own connection, and does not know either.
_SDK_MESSAGES: Final = (
    (-32000, re.compile(r"Connection closed|SSE stream (?:ended|failed)\b.*", re.DOTALL), "NETWORK_ERROR"),
    (-32001, re.compile(r"Request '.*' timed out", re.DOTALL), "TIMEOUT"),
    # An answer came, and could not be read.
    (-32700, re.compile(r"Failed to parse (?:JSON response|SSE message): .*", re.DOTALL), "INVALID_MESSAGE"),
    (
        -32600,
        re.compile(r"Unexpected content type: .*|server answered a request with 202 .*", re.DOTALL),
        "INVALID_MESSAGE",
    ),
    # An HTTP status from 400 on, without a word of the server.
    (-32603, re.compile("Server returned an error response"), "INTERNAL"),
)
# The gateway's own numbers.
_GATEWAY_ERROR_NUMBERS: Final = {
    1001: ("TIMEOUT", Effect.UNKNOWN, False),
    1002: ("CONNECTION_ERROR", Effect.NONE, True),
    1003: ("NETWORK_ERROR", Effect.UNKNOWN, False),
    1004: ("TEMPORARY_FAILURE", Effect.NONE, True),
    1005: ("RESOURCE_EXHAUSTED", Effect.NONE, True),
    1006: ("RATE_LIMIT", Effect.NONE, True),
    1007: ("CONFLICT", Effect.NONE, False),
    1008: ("IN_PROGRESS", Effect.UNKNOWN, True),
    1009: ("IN_DOUBT", Effect.UNKNOWN, False),
    1010: ("SEQUENCE_ERROR", Effect.NONE, False),
    1011: ("TRANSACTION_ERROR", Effect.UNKNOWN, False),
    1014: ("INTEGRITY_ERROR", Effect.DONE, False),
}


def exception_failure(error: Exception) -> CallFailure:
    """What an exception of the wrapped session says; one that nobody foresaw may mean anything."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        # What a task group makes of one exception.
        error = error.exceptions[0]
    message = redact(str(error) or type(error).__name__)
    if isinstance(error, TxError):
        return CallFailure(
            code=error.error_code,
            message=redact(error.detail),
            effect=error.effect,
            retryable=error.retryable,
        )
    number = getattr(error, "code", None)
    if isinstance(number, int) and not isinstance(number, bool):
        return _numbered_failure(number, message, getattr(error, "data", None))
    if isinstance(error, ConnectionRefusedError | socket.gaierror) or _is_named(error, _NEVER_CONNECTED):
        return _quoted_failure("CONNECTION_ERROR", message, effect=Effect.NONE, retryable=True)
    if isinstance(error, TimeoutError) or _is_named(error, _TIMED_OUT):
        return _quoted_failure("TIMEOUT", message)
    if isinstance(error, OSError | EOFError) or _is_named(error, _LOST):
        return _quoted_failure("NETWORK_ERROR", message)
    if _is_named(error, _NOT_WRITTEN):
        return _quoted_failure("INVALID_PARAMS", message, effect=Effect.NONE)
    return _quoted_failure("INTERNAL", message, is_unknown=True)


def _quoted_failure(code: str, message: str, **more: Any) -> CallFailure:
    return CallFailure(code=code, message=message, is_quoted=True, **more)


# By name, because the libraries that raise them are the wrapped session's, not ours.
_NEVER_CONNECTED: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_TIMED_OUT: Final = frozenset({"TimeoutException"})
_LOST: Final = frozenset({"TransportError", "ClosedResourceError", "BrokenResourceError", "EndOfStream"})
# Arguments that are no JSON.
_NOT_WRITTEN: Final = frozenset({"PydanticSerializationError"})


def _is_named(error: Exception, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _numbered_failure(number: int, message: str, data: object) -> CallFailure:
    if isinstance(data, Mapping) and isinstance(data.get("code"), str) and "effect" in data:
        return _gateway_failure(data, message)
    if data is None:
        for known, words, code in _SDK_MESSAGES:
            if number == known and words.fullmatch(message):
                return _quoted_failure(code, message)
    if number in _GATEWAY_ERROR_NUMBERS:
        code, effect, retryable = _GATEWAY_ERROR_NUMBERS[number]
        return _quoted_failure(code, message, effect=effect, retryable=retryable)
    return _server_error_failure(REJECTION_CODES.get(number, ""), message, data)


def _server_error_failure(refusal: str, message: str, data: object) -> CallFailure:
    """The error of a server: it did not begin, or it did what it did and answered."""
    effect = Effect.NONE if refusal else Effect.DONE
    meta = data.get("_meta") if isinstance(data, Mapping) else None
    delivery_status = delivery_metadata_of(meta)
    if delivery_status:
        # A gateway knows more: of the attempts before this one, and of the number of a server of its own.
        processed = delivery_status.get("processed")
        effect = Effect.DONE if processed is True else Effect.NONE if processed is False else Effect.UNKNOWN
    effect = _recorded(meta, effect)
    return CallFailure(
        code=refusal or "INTERNAL",
        message=message,
        effect=effect,
        is_quoted=True,
        is_answer=effect is not Effect.UNKNOWN,
        ack=delivery_status.get("ack") is not False,
        duplicate=delivery_status.get("duplicate") is True or _operation(meta).get("duplicate") is True,
        is_recorded=_operation(meta).get("state") == _FAILED,
    )


def _operation(meta: object) -> Mapping[str, Any]:
    """What a gateway says of its record of the call."""
    told = meta.get(OPERATION_META) if isinstance(meta, Mapping) else None
    return told if isinstance(told, Mapping) else {}


def _recorded(meta: object, effect: Effect) -> Effect:
    """The effect of a call, after what the ledger of a gateway says of all its attempts."""
    state = _operation(meta).get("state")
    return _BY_STATE.get(state, effect) if isinstance(state, str) else effect


_FAILED: Final = "failed"
_BY_STATE: Final = {"in_doubt": Effect.UNKNOWN, "intent": Effect.UNKNOWN, _FAILED: Effect.NONE}


def metadata_failure(meta: Mapping[str, Any], text: str) -> CallFailure | None:
    """What a gateway says instead of an answer: its own error, or a NACK; None for an answer."""
    told = meta.get(ERROR_META)
    delivery_status = delivery_metadata_of(meta)
    ack, duplicate = delivery_status.get("ack") is True, delivery_status.get("duplicate") is True
    if isinstance(told, Mapping) and isinstance(told.get("code"), str):
        failure = _gateway_failure(told, redact(text[:_LONGEST_SENTENCE]) or told["code"])
        effect = _recorded(meta, failure.effect)
        recorded = _operation(meta).get("state") == _FAILED
        return replace(failure, effect=effect, ack=ack, duplicate=duplicate, is_recorded=recorded)
    if not delivery_status:
        return None
    processed = delivery_status.get("processed")
    refused = delivery_status.get("ack") is False
    if not refused and (processed is True or delivery_status.get("final_status") not in _WITHOUT_ANSWER):
        return None
    said = delivery_status.get("error_code")
    code = said if isinstance(said, str) else ""
    nothing = processed is False or (refused and processed is None)
    return CallFailure(
        code=code or "TEMPORARY_FAILURE",
        message=redact(text) or f"the peer did not accept the call ({code or 'without a reason'})",
        effect=Effect.NONE if nothing else Effect.UNKNOWN,
        retryable=code in RETRYABLE,
        is_quoted=bool(text),
        ack=ack,
        duplicate=duplicate,
    )


# How a call ended to which the peer has no answer, because it is a gateway.
_WITHOUT_ANSWER: Final = ("failed", "timeout")
# A gateway writes its own sentences, with what to do next, and has cut what it quotes.
_LONGEST_SENTENCE: Final = 4000


def _gateway_failure(told: Mapping[str, Any], message: str) -> CallFailure:
    after = told.get("retry_after_seconds")
    effect = told.get("effect")
    if told["code"] == "IN_PROGRESS":
        # That this attempt did nothing settles nothing: the first one is still under way.
        effect = Effect.UNKNOWN
    return CallFailure(
        code=told["code"],
        message=message,
        effect=Effect(effect) if effect in _EFFECTS else Effect.UNKNOWN,
        retryable=told.get("retryable") is True,
        retry_after_seconds=float(after) if isinstance(after, int | float) else None,
    )


_EFFECTS: Final = tuple(Effect)


# The longest that a peer may make us wait: what asks for more is left to the caller.
_MAX_RETRY_AFTER_SECONDS = 60.0


def policy_allows_retry(
    policy: RetryPolicy, failure: CallFailure, attempts: int, *, retry_unknown: bool
) -> bool:
    """Whether the policy would have another attempt, safe or not."""
    if attempts >= policy.max_attempts:
        return False
    if failure.is_unknown:
        return retry_unknown
    if failure.retryable and "TEMPORARY_FAILURE" in policy.retryable_errors:
        return (failure.retry_after_seconds or 0) <= _MAX_RETRY_AFTER_SECONDS
    return failure.code in policy.retryable_errors


def retry_delay_seconds(policy: RetryPolicy, failure: CallFailure, attempts: int, random: float) -> float:
    """How long to wait before the next attempt: the policy's delay, or longer when the peer asks for it."""
    return max(policy.delay_ms(attempts, random) / 1000, failure.retry_after_seconds or 0.0)
