"""`input_required` results, and the sealed `requestState` that a client returns with its responses."""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.input_requests.errors import RequestStateRefused
from headgate.protocol.jsonrpc import LARGE_BYTES, decode_object, encode_object
from headgate.protocol.result_conversion import INPUT_REQUIRED

# Only these may have an `input_required` result.
INPUT_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
INPUT_RESPONSES = "inputResponses"
REQUEST_STATE = "requestState"
_ELICITATION_ID = "elicitationId"


class InputRequest(msgspec.Struct, frozen=True):
    """One request of the upstream to the client."""

    method: str
    params: Raw = Raw(b"")


class InputRequiredResult(msgspec.Struct, frozen=True, rename="camel"):
    """The input requests of an upstream and its requestState."""

    result_type: str
    input_requests: dict[str, InputRequest] = {}
    request_state: str | None = None


def input_required_of(answer: McpResponse) -> InputRequiredResult | None:
    """The input that a result requests, or None; raises ValueError when it cannot be read."""
    result = answer.result
    # Large results are on disk; an input request is never that large.
    if not answer.typed or not isinstance(result, bytes) or INPUT_REQUIRED not in result:
        return None
    try:
        kind = decode_object(result).get("resultType", b"")
        if bytes(kind) != INPUT_REQUIRED:
            return None
        return msgspec.json.decode(result, type=InputRequiredResult)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"questions that cannot be read ({error})") from error


def handshake_params(input_request: InputRequest) -> bytes:
    """The params of an input request in the handshake era, in which a URL elicitation has an id."""
    params = bytes(input_request.params)
    if input_request.method != "elicitation/create" or b'"url"' not in params:
        return params
    try:
        members = decode_object(params)
    except (DecodeError, UnicodeDecodeError):
        return params
    if bytes(members.get("mode", b"")) != b'"url"' or _ELICITATION_ID in members:
        return params
    return encode_object({**members, _ELICITATION_ID: Raw(msgspec.json.encode(secrets.token_urlsafe(16)))})


def with_request_state(answer: McpResponse, state: str) -> McpResponse:
    assert isinstance(answer.result, bytes)
    members = decode_object(answer.result)
    members[REQUEST_STATE] = Raw(msgspec.json.encode(state))
    return McpResponse(encode_object(members), typed=True)


def input_required_answer(requested_input: Mapping[str, InputRequest], state: str) -> McpResponse:
    requests = {}
    for key, each in requested_input.items():
        members = {"method": Raw(msgspec.json.encode(each.method)), "params": each.params}
        requests[key] = Raw(encode_object({name: raw for name, raw in members.items() if raw}))
    members = {
        "resultType": Raw(INPUT_REQUIRED),
        "inputRequests": Raw(encode_object(requests)),
        REQUEST_STATE: Raw(msgspec.json.encode(state)),
    }
    return McpResponse(encode_object(members), typed=True)


_PURPOSE = "requestState"
# The same words for what was never issued and for what was issued to another caller or request.
_NOT_VALID = "it was not given by this gateway, was changed, is too old, or belongs to another request"
# A person may take minutes to answer an elicitation.
STATE_LIFETIME_SECONDS = 600.0
# Used values are remembered for as long as they are valid, up to this number.
_MAX_USED = 100_000


class StateSealer(Protocol):
    """Encrypts and authenticates content for clients to keep."""

    def seal(self, purpose: str, content: bytes, seconds: float) -> str:
        """A token that can be opened for so long."""

    def open(self, purpose: str, token: str) -> bytes:
        """What was sealed; raises ValueError."""


class SealedRequestState(msgspec.Struct, frozen=True):
    """The content of a requestState."""

    # `upstream`: the server's own requestState; `held`: a call that is suspended here.
    kind: Literal["upstream", "held"]
    request: bytes
    content: str


class RequestStateSealer:
    """Seals requestState values and opens each of them once."""

    def __init__(self, seal: StateSealer, now: Callable[[], float] = time.monotonic) -> None:
        self._seal = seal
        self._now = now
        self._used: dict[bytes, float] = {}

    def seal_state(self, kind: Literal["upstream", "held"], call: UpstreamCall, content: str) -> str:
        """A requestState for the client of this call."""
        caller = call.request.caller
        sealed_state = msgspec.msgpack.encode(SealedRequestState(kind, _request_digest(call), content))
        # What is sealed for one owner does not open for another, like a token that was never sealed.
        return self._seal.seal(caller.owned_purpose(_PURPOSE), sealed_state, STATE_LIFETIME_SECONDS)

    def open_state(self, call: UpstreamCall) -> SealedRequestState:
        """The content of the requestState of this call; raises RequestStateRefused."""
        try:
            token = msgspec.json.decode(call.request.params[REQUEST_STATE], type=str)
            sealed = self._seal.open(call.request.caller.owned_purpose(_PURPOSE), token)
            sealed_state = msgspec.msgpack.decode(sealed, type=SealedRequestState)
        except (DecodeError, UnicodeDecodeError, ValueError) as error:
            raise RequestStateRefused(_NOT_VALID) from error
        if sealed_state.request != _request_digest(call):
            raise RequestStateRefused(_NOT_VALID)
        now = self._now()
        digest = hashlib.sha256(token.encode()).digest()
        if self._used.get(digest, 0.0) > now:
            raise RequestStateRefused("it was used before")
        self._used[digest] = now + STATE_LIFETIME_SECONDS
        # The first ones end first.
        while len(self._used) > _MAX_USED or next(iter(self._used.values())) <= now:
            del self._used[next(iter(self._used))]
        return sealed_state


def _request_digest(call: UpstreamCall) -> bytes:
    """A digest of method, tool and arguments, whatever their order."""
    request = call.request
    canonical = bytes(request.params.get("arguments", b"null"))
    # Large ones must be the same bytes: to sort them takes too long.
    if len(canonical) <= LARGE_BYTES:
        with suppress(DecodeError, UnicodeDecodeError, RecursionError):
            canonical = msgspec.json.encode(msgspec.json.decode(canonical), order="deterministic")
    parts = (request.method.encode(), call.item.server.encode(), call.item.name.encode(), canonical)
    return hashlib.sha256(b"\0".join(parts)).digest()
