"""JSON-RPC replies to clients: results and errors encoded for the client's era, in memory or on disk."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec
from msgspec import Raw

from headgate.catalog.errors import InvalidExpansionRequest, PromptNotFound, ResourceNotFound, SchemaNotFound
from headgate.domain.errors import (
    GatewayLoop,
    HeaderMismatch,
    HeadgateError,
    InvalidArguments,
    InvalidUpstreamResponse,
    MethodNotFound,
)
from headgate.domain.gateway_chain import META_LOOP
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import Payload, payload_size
from headgate.domain.redaction import redact
from headgate.input_requests.errors import RequestStateRefused
from headgate.protocol.jsonrpc import encode_failure, one_line
from headgate.protocol.jsonrpc_errors import (
    HEADER_MISMATCH,
    HTTP_STATUS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    ProtocolViolation,
    encode_error,
)
from headgate.protocol.protocol_version import Era
from headgate.protocol.result_conversion import (
    COMPLETE,
    UNCACHED,
    ResultNeedsInput,
    to_handshake,
    to_stateless,
    tool_error_result,
    without_connection_keys,
)


class Reply(msgspec.Struct):
    """One message whose large part may still be on disk."""

    head: bytes
    payload: Payload = b""
    tail: bytes = b""
    # The HTTP status, where it is not part of a stream.
    status: int = 200
    # Whether it carries a result.
    succeeded: bool = True

    @property
    def whole(self) -> bytes | None:
        """The message, unless it is on disk."""
        return self.head + self.payload + self.tail if isinstance(self.payload, bytes) else None

    @property
    def size(self) -> int:
        return len(self.head) + payload_size(self.payload) + len(self.tail)

    @property
    def memory_bytes(self) -> int:
        return self.size if isinstance(self.payload, bytes) else len(self.head) + len(self.tail)

    def chunks(self) -> Iterator[bytes]:
        whole = self.whole
        if whole is not None:
            yield whole
            return
        yield self.head
        yield from self.payload.chunks()  # type: ignore[union-attr]
        yield self.tail

    def lines(self) -> Iterator[bytes]:
        return map(one_line, self.chunks())

    def close(self) -> None:
        if not isinstance(self.payload, bytes):
            self.payload.close()


def result_reply(id: bytes, payload: Payload, *, opening: bytes = b"") -> Reply:
    """A successful response; `opening` goes before the first member of the result, which is on disk."""
    head = b'{"jsonrpc":"2.0","id":' + id + b',"result":'
    if isinstance(payload, bytes) or not opening:
        return Reply(head, payload, b"}")
    return Reply(head + b"{" + opening + b",", _PayloadWithoutBrace(payload), b"}")


def error_reply(id: bytes, error: bytes) -> Reply:
    return Reply(encode_failure(id, error), succeeded=False)


class _PayloadWithoutBrace:
    """An object on disk without its opening brace."""

    def __init__(self, payload: Payload) -> None:
        assert not isinstance(payload, bytes)
        self._payload = payload

    @property
    def size(self) -> int:
        return self._payload.size - 1

    @property
    def first(self) -> bytes:
        return next(self.chunks())[:1]

    def chunks(self) -> Iterator[bytes]:
        chunks = self._payload.chunks()
        yield next(chunks)[1:]
        yield from chunks

    def close(self) -> None:
        self._payload.close()


# Errors that are not the result of a tool have an HTTP status of their own.
_REQUEST_ERRORS = (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
_TOOL_CALL = "tools/call"
_READ = "resources/read"
_NO_META: Mapping[str, Raw] = {}


class _ReplyErrorCode(msgspec.Struct):
    code: int = 0


def encode_reply(id: bytes, method: str, name: str, answer: McpResponse, era: Era) -> Reply:
    """The reply with an upstream's answer; raises ProtocolViolation when there is none."""
    if answer.error:
        return error_reply(id, answer.error)
    payload = answer.result
    if (payload[:1] if isinstance(payload, bytes) else payload.first) != b"{":
        if not isinstance(payload, bytes):
            payload.close()
        invalid = InvalidUpstreamResponse(name, method, "a result that is no object")
        return encode_gateway_error(id, method, invalid, era)
    stateless = era is Era.STATELESS
    opening = COMPLETE + b"," + UNCACHED if method == _READ else COMPLETE
    if not isinstance(payload, bytes):
        # On disk, so not opened; a type too many does no harm, one too few does.
        return result_reply(id, payload, opening=opening if stateless and not answer.typed else b"")
    if stateless:
        if answer.typed:
            return result_reply(id, without_connection_keys(payload))
        return result_reply(id, to_stateless(payload, opening))
    if not answer.typed:
        return result_reply(id, payload)
    try:
        return result_reply(id, to_handshake(payload, hints=method == _READ))
    except ResultNeedsInput as kind:
        reason = f"a result of the type {kind}, which this client cannot handle"
        return encode_gateway_error(id, method, InvalidUpstreamResponse(name, method, reason), era)


def encode_upstream_error(id: bytes, answer: McpResponse) -> Reply:
    """An upstream's error about the method as such, with the HTTP status of the stateless era."""
    reply = error_reply(id, answer.error)
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        code = msgspec.json.decode(answer.error, type=_ReplyErrorCode).code
        reply.status = HTTP_STATUS[code] if code in _REQUEST_ERRORS else 200
    return reply


def encode_gateway_error(
    id: bytes, method: str, error: HeadgateError, era: Era, meta: Mapping[str, Raw] = _NO_META
) -> Reply:
    """The gateway's own error: a result that the model can read for a tool, a JSON-RPC error for the rest.

    Secrets are redacted. `meta` goes beside the error data.
    """
    violation = _protocol_violation(id, method, error, era)
    if violation is not None:
        raise violation from error
    if method == _TOOL_CALL:
        result_meta: dict[str, object] = {"io.headgate/error": error.error_data, **meta}
        answer = tool_error_result(redact(error.sentence), result_meta, error.details)
        return result_reply(id, to_stateless(answer) if era is Era.STATELESS else answer)
    data = {**error.error_data, "_meta": meta} if meta else error.error_data
    problem = {"code": error.number, "message": redact(f"{error.message}; {error.hint}"), "data": data}
    return error_reply(id, msgspec.json.encode(problem))


def _protocol_violation(id: bytes, method: str, error: HeadgateError, era: Era) -> ProtocolViolation | None:
    message, data = redact(f"{error.message}; {error.hint}"), error.error_data
    match error:
        case ResourceNotFound():
            code = INVALID_PARAMS if era is Era.STATELESS else RESOURCE_NOT_FOUND
            return ProtocolViolation(code, message, id=id, data={"uri": error.uri[:2000]}, status=200)
        case PromptNotFound() | RequestStateRefused():
            return ProtocolViolation(INVALID_PARAMS, message, id=id, status=200)
        case SchemaNotFound() | InvalidExpansionRequest():
            # The message alone, which clients know word for word.
            return ProtocolViolation(INVALID_PARAMS, redact(error.message), id=id, data=data, status=200)
        case InvalidArguments() if method != _TOOL_CALL:
            return ProtocolViolation(INVALID_PARAMS, message, id=id, data=data, status=200)
        case HeaderMismatch():
            return ProtocolViolation(HEADER_MISMATCH, message, id=id)
        case MethodNotFound():
            return ProtocolViolation(METHOD_NOT_FOUND, message, id=id)
    return None


def encode_loop_error(id: bytes, message: str) -> bytes:
    """The JSON-RPC error that tells a gateway that it is connected to itself."""
    data = {"code": GatewayLoop.code, "effect": "none", "retryable": False, META_LOOP: True}
    return encode_error(id, GatewayLoop.number, message, data)
