"""Gives a call its idempotency key, and a fingerprint of its canonical arguments."""

import hashlib
import heapq
import uuid
from typing import Any

import msgspec
from msgspec import DecodeError, Raw
from msgspec.structs import replace

from headgate.domain.mcp_request import DeliveryOptions, UpstreamCall
from headgate.domain.upstream_policy import ToolSafety
from headgate.protocol.jsonrpc import decode_object, encode_object

# Missing arguments, in either spelling.
_NO_ARGUMENTS = (b"", b"null")
# Models write these for an argument that they leave out; they are no keys.
_EMPTY_VALUES = (b"null", b'""')


def with_idempotency_key(
    call: UpstreamCall, delivery_options: DeliveryOptions, policy: ToolSafety | None
) -> UpstreamCall:
    """The call with one key for all its attempts: that of its options, or a new one.

    The key goes into the configured argument, unless the client set it, and into the configured header.
    """
    key = delivery_options.key or uuid.uuid4().hex
    header = policy.key_header if policy is not None else ""
    delivery_options = replace(delivery_options, key=key, key_header=header or delivery_options.key_header)
    if policy is not None and policy.key_argument:
        call = _with_argument(call, policy.key_argument, key)
    return replace(call, delivery_options=delivery_options)


def _with_argument(call: UpstreamCall, name: str, key: str) -> UpstreamCall:
    params = call.request.params
    given = bytes(params.get("arguments", b""))
    try:
        arguments = {} if given in _NO_ARGUMENTS else decode_object(given)
    except (DecodeError, UnicodeDecodeError):
        # The server reports what is wrong with them.
        return call
    if name in arguments and bytes(arguments[name]) not in _EMPTY_VALUES:
        # The client has set its own key.
        return call
    arguments[name] = Raw(msgspec.json.encode(key))
    params = {**params, "arguments": Raw(encode_object(arguments))}
    return replace(call, request=replace(call.request, params=params))


# A double cannot represent larger integers exactly, so canonical JSON has no form for them.
_LARGEST_EXACT = 2**53
# A sort holds the GIL until it is done.
_MOST_SORTED = 20_000
_MOST_COMMAS = 100_000
_VERBATIM_PREFIX = b"as it is: "


def fingerprint(server: str, tool: str, arguments: bytes) -> bytes:
    """Equal for two calls exactly when server, tool and the value of the arguments are equal.

    Arguments that cannot be read, or not exactly, are compared byte for byte.
    """
    digest = hashlib.sha256()
    for part in (server.encode(), tool.encode(), canonical(arguments or b"{}")):
        # With its length, so that the parts cannot be shifted.
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def canonical(document: bytes) -> bytes:
    """JSON in the canonical form of RFC 8785, where `1` equals `1.0` and the order of members is fixed.

    Integers that a double cannot represent become tagged strings. A document of very many values is left as
    it is, because decoding it would hold the GIL for too long.
    """
    if document.count(b",") > _MOST_COMMAS:
        return _VERBATIM_PREFIX + document
    try:
        value = msgspec.json.decode(document)
        return _canonical_text(value).encode("utf-8", "surrogatepass")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return _VERBATIM_PREFIX + document


def _canonical_text(value: Any) -> str:
    match value:
        case dict():
            # By UTF-16 code units, as the RFC requires; very many in parts, so that other threads run.
            names = list(value)
            parts = (
                sorted(names[start : start + _MOST_SORTED], key=_code_units)
                for start in range(0, len(names), _MOST_SORTED)
            )
            members = (
                f"{_json_string(name)}:{_canonical_text(value[name])}"
                for name in heapq.merge(*parts, key=_code_units)
            )
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_canonical_text, value)) + "]"
        case str():
            return _json_string(value)
        case bool() | None:
            return {None: "null", True: "true", False: "false"}[value]
        case int() if abs(value) > _LARGEST_EXACT:
            return f'"integer {value}"~'
        case _:
            return _ecmascript_number(float(value))


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _json_string(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _ecmascript_number(value: float) -> str:
    if abs(value) <= _LARGEST_EXACT and value == int(value):
        return str(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction.rstrip("0")).lstrip("0")
    # The position of the decimal point, counted from before the first digit.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction.rstrip("0")) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        behind = f".{digits[point:]}" if len(digits) > point else ""
        return f"{sign}{digits[:point].ljust(point, '0')}{behind}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"
