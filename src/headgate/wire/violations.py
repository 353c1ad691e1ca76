"""What the protocol forbids: the numbers that the specification names, and the HTTP status of each."""

import msgspec

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# Of the handshake era; later ones say INVALID_PARAMS.
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


class Violation(Exception):
    """A message that breaks the protocol, with the error that answers it."""

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
        """The JSON-RPC error response that answers the message."""
        return encode_error(self.id, self.code, self.message, self.data)


def encode_error(id: bytes, code: int, message: str, data: object = None) -> bytes:
    """One JSON-RPC error response."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":' + id + b',"error":' + msgspec.json.encode(error) + b"}"
