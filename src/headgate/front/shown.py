"""An upstream's answer, or the gateway's own error, in the words of the client's era."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from headgate.domain.call import Answer
from headgate.domain.errors import (
    ExpansionRefused,
    HeaderMismatch,
    HeadgateError,
    InvalidAnswer,
    InvalidArguments,
    MethodUnknown,
    PromptNotFound,
    ReminderRefused,
    ResourceNotFound,
    SchemaNotFound,
)
from headgate.domain.redaction import cleaned
from headgate.front.reply import Reply, failure, result
from headgate.wire.eras import Era
from headgate.wire.results import (
    COMPLETE,
    UNCACHED,
    NeedsInput,
    for_handshake,
    for_stateless,
    text_failure,
    without_connection_keys,
)
from headgate.wire.violations import (
    HEADER_MISMATCH,
    HTTP_STATUS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Violation,
)

# Errors that are not about what a tool did: HTTP says so too.
_ABOUT_THE_REQUEST = (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
_TOOL_CALL = "tools/call"
_READ = "resources/read"
_NO_META: Mapping[str, Raw] = {}


class _Error(msgspec.Struct):
    code: int = 0


def shown(id: bytes, method: str, name: str, answer: Answer, era: Era) -> Reply:
    """The reply that carries an upstream's answer; raises Violation when there is nothing to carry."""
    if answer.error:
        return failure(id, answer.error)
    payload = answer.result
    if (payload[:1] if isinstance(payload, bytes) else payload.first) != b"{":
        if not isinstance(payload, bytes):
            payload.close()
        return failed(id, method, InvalidAnswer(name, method, "a result that is no object"), era)
    stateless = era is Era.STATELESS
    opening = COMPLETE + b"," + UNCACHED if method == _READ else COMPLETE
    if not isinstance(payload, bytes):
        # On disk, so not opened; a type too many does no harm, one too few does.
        return result(id, payload, opening=opening if stateless and not answer.typed else b"")
    if stateless:
        if answer.typed:
            return result(id, without_connection_keys(payload))
        return result(id, for_stateless(payload, opening))
    if not answer.typed:
        return result(id, payload)
    try:
        return result(id, for_handshake(payload, hints=method == _READ))
    except NeedsInput as kind:
        reason = f"a result of the type {kind}, which this client cannot handle"
        return failed(id, method, InvalidAnswer(name, method, reason), era)


def refused(id: bytes, answer: Answer) -> Reply:
    """An upstream's error about the method as such, with the HTTP status that the stateless era wants."""
    try:
        code = msgspec.json.decode(answer.error, type=_Error).code
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = 0
    reply = failure(id, answer.error)
    reply.status = HTTP_STATUS[code] if code in _ABOUT_THE_REQUEST else 200
    return reply


def failed(
    id: bytes, method: str, error: HeadgateError, era: Era, meta: Mapping[str, Raw] = _NO_META
) -> Reply:
    """The gateway's own error: a result that the model can read for a tool, a JSON-RPC error for the rest.

    It tells no secrets. `meta` goes beside what it says of itself.
    """
    violation = _violation(id, method, error, era)
    if violation is not None:
        raise violation from error
    if method == _TOOL_CALL:
        told: dict[str, object] = {"io.headgate/error": error.told, **meta}
        answer = text_failure(cleaned(error.sentence), told, error.details)
        return result(id, for_stateless(answer) if era is Era.STATELESS else answer)
    data = {**error.told, "_meta": meta} if meta else error.told
    problem = {"code": error.number, "message": cleaned(f"{error.message}; {error.hint}"), "data": data}
    return failure(id, msgspec.json.encode(problem))


def _violation(id: bytes, method: str, error: HeadgateError, era: Era) -> Violation | None:
    """What the protocol has a number of its own for."""
    message = cleaned(f"{error.message}; {error.hint}")
    match error:
        case ResourceNotFound():
            code = INVALID_PARAMS if era is Era.STATELESS else RESOURCE_NOT_FOUND
            return Violation(code, message, id=id, data={"uri": error.uri[:2000]}, status=200)
        case PromptNotFound() | ReminderRefused():
            return Violation(INVALID_PARAMS, message, id=id, status=200)
        case SchemaNotFound() | ExpansionRefused():
            # The message alone, which clients know word for word.
            return Violation(INVALID_PARAMS, cleaned(error.message), id=id, data=error.told, status=200)
        case InvalidArguments() if method != _TOOL_CALL:
            return Violation(INVALID_PARAMS, message, id=id, data=error.told, status=200)
        case HeaderMismatch():
            return Violation(HEADER_MISMATCH, message, id=id)
        case MethodUnknown():
            return Violation(METHOD_NOT_FOUND, message, id=id)
    return None
