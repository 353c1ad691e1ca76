"""What went wrong with one attempt, and what may have happened all the same."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.domain.errors import Effect
from headgate.domain.redaction import cleaned
from headgate.tx.errors import TxError
from headgate.wire.rmcp import META, RETRYABLE

ERROR_META: Final = "io.headgate/error"
OPERATION_META: Final = "io.headgate/operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why one attempt brought no answer."""

    code: str
    message: str
    effect: Effect = Effect.UNKNOWN
    # Whether the peer said that another attempt may help, and not before when.
    retryable: bool = False
    retry_after_seconds: float | None = None
    # Whether nobody foresaw it.
    is_unknown: bool = False


def of_timeout(tool: str, timeout_ms: float, *, sent: bool) -> Failure:
    """No answer within the time of an attempt; it may not even have been sent."""
    if sent:
        message = f"no answer to {tool!r} within {timeout_ms:g} ms, so it may have been carried out"
        return Failure(code="TIMEOUT", message=message)
    message = f"{tool!r} waited {timeout_ms:g} ms for its turn and was not sent"
    return Failure(code="TIMEOUT", message=message, effect=Effect.NONE)


def of_changed_peer(tool: str) -> Failure:
    """A call that was to be made again, and whoever is there now does not know its key."""
    message = f"the connection was lost while {tool!r} was under way, so it may have been carried out"
    return Failure(code="NETWORK_ERROR", message=message)


# Nobody carried it out: unknown method or parameters, a header or a version that does not fit, no JSON.
_REFUSED: Final = {
    -32700: "INVALID_MESSAGE",
    -32600: "INVALID_MESSAGE",
    -32601: "TOOL_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32020: "INVALID_MESSAGE",
    -32021: "INVALID_MESSAGE",
    -32022: "VERSION_MISMATCH",
}
# What the SDK says of its own connection.
_CONNECTION_CLOSED: Final = -32000
_REQUEST_TIMEOUT: Final = -32001
# The gateway's own numbers.
_NUMBERS: Final = {
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


def of_exception(error: Exception) -> Failure:
    """What an exception of the wrapped session says; one that nobody foresaw may mean anything."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        # What a task group makes of one exception.
        error = error.exceptions[0]
    message = cleaned(str(error) or type(error).__name__)
    if isinstance(error, TxError):
        return Failure(code=error.error_code, message=message, effect=error.effect, retryable=error.retryable)
    number = getattr(error, "code", None)
    if isinstance(number, int) and not isinstance(number, bool):
        return _of_number(number, message, getattr(error, "data", None))
    if isinstance(error, ConnectionRefusedError | socket.gaierror) or _is_named(error, _NEVER_CONNECTED):
        return Failure(code="CONNECTION_ERROR", message=message, effect=Effect.NONE, retryable=True)
    if isinstance(error, TimeoutError) or _is_named(error, _TIMED_OUT):
        return Failure(code="TIMEOUT", message=message)
    if isinstance(error, OSError | EOFError) or _is_named(error, _LOST):
        return Failure(code="NETWORK_ERROR", message=message)
    return Failure(code="INTERNAL", message=message, is_unknown=True)


# By name, because the libraries that raise them are the wrapped session's, not ours.
_NEVER_CONNECTED: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_TIMED_OUT: Final = frozenset({"TimeoutException"})
_LOST: Final = frozenset({"TransportError", "ClosedResourceError", "BrokenResourceError", "EndOfStream"})


def _is_named(error: Exception, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _of_number(number: int, message: str, data: object) -> Failure:
    if isinstance(data, Mapping) and isinstance(data.get("code"), str) and "effect" in data:
        return _told(data, message)
    if number == _REQUEST_TIMEOUT:
        return Failure(code="TIMEOUT", message=message)
    if number == _CONNECTION_CLOSED:
        return Failure(code="NETWORK_ERROR", message=message)
    if number in _REFUSED:
        # The server refused this attempt, and a gateway may know of one before that it did not.
        effect = Effect.UNKNOWN if _is_in_doubt(data) else Effect.NONE
        return Failure(code=_REFUSED[number], message=message, effect=effect)
    if number in _NUMBERS:
        code, effect, retryable = _NUMBERS[number]
        return Failure(code=code, message=message, effect=effect, retryable=retryable)
    # The server answered, and nobody knows how far it had come.
    return Failure(code="INTERNAL", message=message)


def _is_in_doubt(data: object) -> bool:
    for name in ("_meta", OPERATION_META, "state"):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data == "in_doubt"


def of_meta(meta: Mapping[str, Any], text: str) -> Failure | None:
    """What a gateway says instead of an answer: its own error, or a NACK; None for an answer."""
    told = meta.get(ERROR_META)
    if isinstance(told, Mapping) and isinstance(told.get("code"), str):
        return _told(told, cleaned(text) or told["code"])
    receipt = meta.get(META)
    if not isinstance(receipt, Mapping):
        return None
    processed = receipt.get("processed")
    refused = receipt.get("ack") is False
    if not refused and (processed is True or receipt.get("final_status") not in _WITHOUT_ANSWER):
        return None
    said = receipt.get("error_code")
    code = said if isinstance(said, str) else ""
    nothing = processed is False or (refused and processed is None)
    return Failure(
        code=code or "TEMPORARY_FAILURE",
        message=cleaned(text) or f"the peer did not accept the call ({code or 'without a reason'})",
        effect=Effect.NONE if nothing else Effect.UNKNOWN,
        retryable=code in RETRYABLE,
    )


# How a call ended to which the peer has no answer, because it is a gateway.
_WITHOUT_ANSWER: Final = ("failed", "timeout")


def _told(told: Mapping[str, Any], message: str) -> Failure:
    after = told.get("retry_after_seconds")
    effect = told.get("effect")
    if told["code"] == "IN_PROGRESS":
        # That this attempt did nothing settles nothing: the first one is still under way.
        effect = Effect.UNKNOWN
    return Failure(
        code=told["code"],
        message=message,
        effect=Effect(effect) if effect in _EFFECTS else Effect.UNKNOWN,
        retryable=told.get("retryable") is True,
        retry_after_seconds=float(after) if isinstance(after, int | float) else None,
    )


_EFFECTS: Final = tuple(Effect)
