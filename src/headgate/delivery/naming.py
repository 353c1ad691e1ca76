"""Gives a call its key in the place where the upstream looks for it."""

import uuid

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Call, Errand
from headgate.domain.care import Care
from headgate.protocol.jsonrpc import decode_object, encode_object

# Arguments that are not there, in either spelling.
_NONE = (b"", b"null")
# Models fill what they leave open with these; no server takes them for the name of a call.
_LEFT_OPEN = (b"null", b'""')


def with_key(call: Call, errand: Errand, care: Care | None) -> Call:
    """The call with one key for all its attempts: its errand's, or a fresh one.

    In an argument, if the operator named one and the client left it open; in a header, if he named one.
    """
    key = errand.key or uuid.uuid4().hex
    header = care.key_header if care is not None else ""
    errand = msgspec.structs.replace(errand, key=key, key_header=header or errand.key_header)
    if care is not None and care.key_argument:
        call = _with_argument(call, care.key_argument, key)
    return msgspec.structs.replace(call, errand=errand)


def _with_argument(call: Call, name: str, key: str) -> Call:
    params = call.request.params
    given = bytes(params.get("arguments", b""))
    try:
        arguments = {} if given in _NONE else decode_object(given)
    except (DecodeError, UnicodeDecodeError):
        # The server says what is wrong with them.
        return call
    if name in arguments and bytes(arguments[name]) not in _LEFT_OPEN:
        # The client has its own name for the call.
        return call
    arguments[name] = Raw(msgspec.json.encode(key))
    params = {**params, "arguments": Raw(encode_object(arguments))}
    return msgspec.structs.replace(call, request=msgspec.structs.replace(call.request, params=params))
