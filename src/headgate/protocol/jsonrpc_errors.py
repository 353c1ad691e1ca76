"""JSON-RPC error codes, the HTTP status of each, and the error response to a message that violates the
protocol.
"""

from typing import Final

import msgspec
from msgspec import DecodeError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# Of the handshake era; later versions use INVALID_PARAMS.
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

# A server sends these for a call that it has not begun; each with the code that clients get.
REJECTION_CODES: Final = {
    PARSE_ERROR: "INVALID_MESSAGE",
    INVALID_REQUEST: "INVALID_MESSAGE",
    METHOD_NOT_FOUND: "TOOL_NOT_FOUND",
    INVALID_PARAMS: "INVALID_PARAMS",
    HEADER_MISMATCH: "INVALID_MESSAGE",
    MISSING_CAPABILITY: "INVALID_MESSAGE",
    UNSUPPORTED_VERSION: "VERSION_MISMATCH",
}


# Those are errors of the client, with the HTTP status of these.
HTTP_STATUS = dict.fromkeys(REJECTION_CODES, 400) | {METHOD_NOT_FOUND: 404}


class RequestRejection(msgspec.Struct, frozen=True):
    """A JSON-RPC error for a call that was not begun; without a code any other error."""

    code: str = ""
    message: str = ""


class _JsonRpcError(msgspec.Struct):
    code: int = 0
    message: str = ""


def rejection_of(error: bytes) -> RequestRejection:
    """Whether an error of a server means that it did not begin the call."""
    try:
        read = msgspec.json.decode(error or b"{}", type=_JsonRpcError)
    except (DecodeError, UnicodeDecodeError):
        return RequestRejection()
    code = REJECTION_CODES.get(read.code, "")
    return RequestRejection(code, read.message) if code else RequestRejection()


class ProtocolViolation(Exception):
    """A message that violates the protocol, with its error response."""

    def __init__(
        self, code: int, message: str, *, id: bytes = b"null", data: object = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        self.data = data
        self.status = status or HTTP_STATUS.get(code, 200)

    def encode(self) -> bytes:
        return encode_error(self.id, self.code, self.message, self.data)


def invalid_params(reason: object, id: bytes) -> ProtocolViolation:
    return ProtocolViolation(INVALID_PARAMS, f"Invalid params: {reason}", id=id)


def encode_error(id: bytes, code: int, message: str, data: object = None) -> bytes:
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":' + id + b',"error":' + msgspec.json.encode(error) + b"}"
