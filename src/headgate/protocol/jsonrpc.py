"""JSON-RPC messages: parses only the fields the gateway acts on and keeps the payload as the bytes that
arrived.
"""

from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from headgate.protocol.json_scan import object_members
from headgate.protocol.jsonrpc_errors import INVALID_REQUEST, PARSE_ERROR, ProtocolViolation, invalid_params

T = TypeVar("T")

ABSENT = Raw(b"")
# Longer ids are refused, because each is kept while its call runs.
MAX_ID_BYTES = 256
# Searching a larger object for repeated members takes long, so server/request_body.py does it in time slices
# before the message is used.
LARGE_BYTES = 64 * 1024


class Envelope(Struct):
    """One message; missing members are `ABSENT` or empty."""

    jsonrpc: str = ""
    id: Raw = ABSENT
    method: str = ""
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class CallParams(Struct, rename={"meta": "_meta"}):
    """The params of tools/call that the gateway acts on."""

    name: str = ""
    arguments: Raw = ABSENT
    meta: Raw = ABSENT


_envelope = Decoder(Envelope, strict=True)
_call_params = Decoder(CallParams, strict=True)
_object = Decoder(dict[str, Raw])

decode_envelope = _envelope.decode
decode_object = _object.decode


def parse_message(body: bytes) -> Envelope:
    """The one message in `body`; raises ProtocolViolation with the error response for anything else."""
    # A large one is not searched for repeated members.
    try:
        envelope = _envelope.decode(body)
        if not body.isascii():
            body.decode()
    except ValidationError as error:
        raise ProtocolViolation(INVALID_REQUEST, f"Not a JSON-RPC message: {error}") from error
    except RecursionError as error:
        raise ProtocolViolation(PARSE_ERROR, "Parse error: nested too deep") from error
    except (DecodeError, UnicodeDecodeError) as error:
        raise ProtocolViolation(PARSE_ERROR, f"Parse error: {error}") from error
    if not has_only_known_members(envelope, len(body)):
        _refuse_duplicates(body, {"jsonrpc", "id", "method", "params"})
    _check_envelope(envelope)
    return envelope


def has_only_known_members(envelope: Envelope, size: int) -> bool:
    """Whether the known members fill the body to the byte, so that none can be repeated."""
    # {"jsonrpc":"2.0","id":1,"method":"x","params":{}} without white space: braces, quotes, colons, commas.
    known = 17 + len(envelope.method) + 12 + len(envelope.id) + len(envelope.params)
    known += 6 if envelope.id else 0
    known += 10 if envelope.params else 0
    return known == size


def _refuse_duplicates(body: bytes, keys: set[str], id: bytes = b"null") -> None:
    # msgspec keeps the last of two equal keys, other parsers the first; that must not be exploited.
    if len(body) > LARGE_BYTES:
        return
    seen: set[str] = set()
    try:
        for member in object_members(body.decode()):
            if member.key in keys and member.key in seen:
                raise ProtocolViolation(INVALID_REQUEST, f"Duplicate key {member.key!r}", id=id)
            seen.add(member.key)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(PARSE_ERROR, f"Parse error: {error}") from error


def _check_envelope(envelope: Envelope) -> None:
    if envelope.jsonrpc != "2.0":
        raise ProtocolViolation(INVALID_REQUEST, 'Not a JSON-RPC message: "jsonrpc" must be "2.0"')
    id = bytes(envelope.id)
    if len(id) > MAX_ID_BYTES:
        raise ProtocolViolation(INVALID_REQUEST, f"The id is longer than {MAX_ID_BYTES} bytes")
    if id and id[:1] != b'"' and not id.lstrip(b"-").isdigit():
        raise ProtocolViolation(INVALID_REQUEST, "The id must be a string or an integer")
    if not envelope.method and not envelope.result and not envelope.error:
        reason = 'Not a JSON-RPC message: neither "method" nor "result" nor "error"'
        raise ProtocolViolation(INVALID_REQUEST, reason)
    if envelope.params and bytes(envelope.params)[:1] != b"{":
        reason = "Not a JSON-RPC message: params must be an object"
        raise ProtocolViolation(INVALID_REQUEST, reason, id=id or b"null")


def parse_call(params: Raw, id: bytes) -> tuple[CallParams, dict[str, Raw]]:
    """The params of tools/call and their other members; raises ProtocolViolation without exactly one name."""
    try:
        call = _call_params.decode(params or b"{}")
    except ValidationError as error:
        raise invalid_params(error, id) from error
    if not call.name:
        raise invalid_params("the name of the tool is missing", id)
    # {"name":"x","arguments":{},"_meta":{}} without white space.
    known = 11 + len(call.name) + len(call.arguments) + len(call.meta)
    known += 13 if call.arguments else 0
    known += 9 if call.meta else 0
    if known == len(params):
        return call, {}
    _refuse_duplicates(bytes(params), {"name", "arguments", "_meta"}, id)
    known_keys = ("name", "arguments", "_meta")
    return call, {key: value for key, value in decode_object(params).items() if key not in known_keys}


def parse_params(params: Raw, id: bytes, *unique: str) -> dict[str, Raw]:
    """The members of params; raises ProtocolViolation if one of the `unique` ones is repeated."""
    if not params:
        return {}
    try:
        found = decode_object(params)
    except (DecodeError, UnicodeDecodeError) as error:
        raise invalid_params(error, id) from error
    _refuse_duplicates(bytes(params), {*unique, "_meta"}, id)
    return found


def decode_params(text: bytes | Raw, kind: type[T], id: bytes, what: str = "") -> T:
    """Params, or their member `what: `, as such a struct; raises ProtocolViolation."""
    try:
        return decode(text or b"{}", type=kind)
    except (DecodeError, UnicodeDecodeError) as error:
        raise invalid_params(f"{what}{error}", id) from error


def encode_request(id: bytes, method: str, params: bytes) -> bytes:
    """One request; `params` may be empty."""
    tail = b',"params":' + params + b"}" if params else b"}"
    return b'{"jsonrpc":"2.0","id":' + id + b',"method":' + encode(method) + tail


def encode_notification(method: str, params: bytes = b"") -> bytes:
    """One notification; `params` may be empty."""
    tail = b',"params":' + params + b"}" if params else b"}"
    return b'{"jsonrpc":"2.0","method":' + encode(method) + tail


def encode_result(id: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id + b',"result":' + result + b"}"


def encode_failure(id: bytes, error: bytes) -> bytes:
    """One error response whose error object is carried verbatim."""
    return b'{"jsonrpc":"2.0","id":' + id + b',"error":' + error + b"}"


def encode_object(items: dict[str, Raw]) -> bytes:
    """An object whose values are carried verbatim, in their order."""
    return b"{" + b",".join([encode(key) + b":" + bytes(value) for key, value in items.items()]) + b"}"


_NEWLINES = bytes.maketrans(b"\r\n", b"  ")


def one_line(message: bytes) -> bytes:
    """`message` without line breaks; in JSON they can only be white space between tokens."""
    return message.translate(_NEWLINES) if b"\n" in message or b"\r" in message else message
