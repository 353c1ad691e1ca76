"""Classifies failed attempts: their code, their effect, and whether and when to retry."""

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
    """Why an attempt has no answer, or an error as its answer."""

    code: str
    # In full, redacted.
    message: str
    effect: Effect = Effect.UNKNOWN
    # Whether the peer marks it as retryable, and from when.
    retryable: bool = False
    retry_after_seconds: float | None = None
    # Whether the exception is of no known kind.
    is_unknown: bool = False
    # Whether the message is quoted from a server or a library.
    is_quoted: bool = False
    # Whether the server itself answered, with an error.
    is_answer: bool = False
    # From rmcp metadata: the peer accepted the call, and had answered it before.
    ack: bool = False
    duplicate: bool = False
    # Whether the record of the peer says that no attempt was executed.
    is_recorded: bool = False

    @property
    def display_message(self) -> str:
        """The message for an error; a quoted one is shortened."""
        return quoted(self.message) if self.is_quoted else self.message


def timeout_failure(tool: str, timeout_ms: float, *, sent: bool) -> CallFailure:
    if sent:
        message = f"no answer to {tool!r} within {timeout_ms:g} ms, so it may have been carried out"
        return CallFailure(code="TIMEOUT", message=message)
    message = f"{tool!r} waited {timeout_ms:g} ms for its turn and was not sent"
    return CallFailure(code="TIMEOUT", message=message, effect=Effect.NONE)


def doubt_failure(tool: str, key: str | None, is_repeat: bool) -> CallFailure:  # noqa: FBT001 (a property of the call)
    """The failure of a call that may have been executed and whose key the current peer does not know."""
    if not is_repeat:
        message = f"the connection was lost while {tool!r} was under way, so it may have been carried out"
        return CallFailure(code="NETWORK_ERROR", message=message)
    message = (
        f"an earlier call of {tool!r} with the key {(key or '')[:200]!r} may have been carried out, so it is "
        'not sent again; check whether it was, or repeat it with on_doubt="retry" '
        "if a second time does no harm"
    )
    return CallFailure(code="IN_DOUBT", message=message)


# Errors of the SDK about its own connection, with numbers that servers use too. They have these messages and
# no data; any other error with the number is the answer of a server. A server built with the SDK sends them
# when it was stopped or lost its own connection, and then the effect is unknown as well.
_SDK_MESSAGES: Final = (
    (-32000, re.compile(r"Connection closed|SSE stream (?:ended|failed)\b.*", re.DOTALL), "NETWORK_ERROR"),
    (-32001, re.compile(r"Request '.*' timed out", re.DOTALL), "TIMEOUT"),
    # An answer that could not be parsed.
    (-32700, re.compile(r"Failed to parse (?:JSON response|SSE message): .*", re.DOTALL), "INVALID_MESSAGE"),
    (
        -32600,
        re.compile(r"Unexpected content type: .*|server answered a request with 202 .*", re.DOTALL),
        "INVALID_MESSAGE",
    ),
    # An HTTP status of 400 or more without a message.
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
    """The failure that an exception of the wrapped session means; the effect of an unknown one is unknown."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        # Raised by a task group.
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


# By name, because the libraries that raise them are not imported here.
_NEVER_CONNECTED: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_TIMED_OUT: Final = frozenset({"TimeoutException"})
_LOST: Final = frozenset({"TransportError", "ClosedResourceError", "BrokenResourceError", "EndOfStream"})
# Arguments that cannot be encoded as JSON.
_NOT_WRITTEN: Final = frozenset({"PydanticSerializationError"})


def _is_named(error: Exception, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _numbered_failure(number: int, message: str, data: object) -> CallFailure:
    if isinstance(data, Mapping) and isinstance(data.get("code"), str) and "effect" in data:
        return _gateway_failure(data, message)
    if data is None:
        for known, pattern, code in _SDK_MESSAGES:
            if number == known and pattern.fullmatch(message):
                return _quoted_failure(code, message)
    if number in _GATEWAY_ERROR_NUMBERS:
        code, effect, retryable = _GATEWAY_ERROR_NUMBERS[number]
        return _quoted_failure(code, message, effect=effect, retryable=retryable)
    return _server_error_failure(REJECTION_CODES.get(number, ""), message, data)


def _server_error_failure(refusal: str, message: str, data: object) -> CallFailure:
    effect = Effect.NONE if refusal else Effect.DONE
    meta = data.get("_meta") if isinstance(data, Mapping) else None
    delivery_status = delivery_metadata_of(meta)
    if delivery_status:
        # A gateway knows more: it covers earlier attempts.
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
    operation = meta.get(OPERATION_META) if isinstance(meta, Mapping) else None
    return operation if isinstance(operation, Mapping) else {}


def _recorded(meta: object, effect: Effect) -> Effect:
    """The effect of all attempts according to the ledger of a gateway, else `effect`."""
    state = _operation(meta).get("state")
    return _BY_STATE.get(state, effect) if isinstance(state, str) else effect


_FAILED: Final = "failed"
_BY_STATE: Final = {"in_doubt": Effect.UNKNOWN, "intent": Effect.UNKNOWN, _FAILED: Effect.NONE}


def metadata_failure(meta: Mapping[str, Any], text: str) -> CallFailure | None:
    """The failure in the metadata of a gateway: its own error, or a NACK; None for an answer."""
    gateway_error = meta.get(ERROR_META)
    delivery_status = delivery_metadata_of(meta)
    ack, duplicate = delivery_status.get("ack") is True, delivery_status.get("duplicate") is True
    if isinstance(gateway_error, Mapping) and isinstance(gateway_error.get("code"), str):
        message = redact(text[:_LONGEST_MESSAGE]) or gateway_error["code"]
        failure = _gateway_failure(gateway_error, message)
        effect = _recorded(meta, failure.effect)
        recorded = _operation(meta).get("state") == _FAILED
        return replace(failure, effect=effect, ack=ack, duplicate=duplicate, is_recorded=recorded)
    if not delivery_status:
        return None
    processed = delivery_status.get("processed")
    refused = delivery_status.get("ack") is False
    if not refused and (processed is True or delivery_status.get("final_status") not in _WITHOUT_ANSWER):
        return None
    error_code = delivery_status.get("error_code")
    code = error_code if isinstance(error_code, str) else ""
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


# The final states of a gateway's call without an answer.
_WITHOUT_ANSWER: Final = ("failed", "timeout")
# A gateway has shortened what it quotes, so that its own message is kept whole.
_LONGEST_MESSAGE: Final = 4000


def _gateway_failure(error: Mapping[str, Any], message: str) -> CallFailure:
    after = error.get("retry_after_seconds")
    effect = error.get("effect")
    if error["code"] == "IN_PROGRESS":
        # This attempt had no effect, but the first one is still in flight.
        effect = Effect.UNKNOWN
    return CallFailure(
        code=error["code"],
        message=message,
        effect=Effect(effect) if effect in _EFFECTS else Effect.UNKNOWN,
        retryable=error.get("retryable") is True,
        retry_after_seconds=float(after) if isinstance(after, int | float) else None,
    )


_EFFECTS: Final = tuple(Effect)


# A peer that asks for a longer wait is not retried.
_MAX_RETRY_AFTER_SECONDS = 60.0


def policy_allows_retry(
    policy: RetryPolicy, failure: CallFailure, attempts: int, *, retry_unknown: bool
) -> bool:
    """Whether the policy allows another attempt, safe or not."""
    if attempts >= policy.max_attempts:
        return False
    if failure.is_unknown:
        return retry_unknown
    if failure.retryable and "TEMPORARY_FAILURE" in policy.retryable_errors:
        return (failure.retry_after_seconds or 0) <= _MAX_RETRY_AFTER_SECONDS
    return failure.code in policy.retryable_errors


def retry_delay_seconds(policy: RetryPolicy, failure: CallFailure, attempts: int, random: float) -> float:
    """Seconds before the next attempt: the delay of the policy, or longer when the peer asks for it."""
    return max(policy.delay_ms(attempts, random) / 1000, failure.retry_after_seconds or 0.0)
