"""Delivers a call and bridges the input requests of its server between the two eras."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import InvalidUpstreamResponse
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.input_requests.errors import RequestStateRefused
from headgate.input_requests.request_state import (
    INPUT_METHODS,
    INPUT_RESPONSES,
    REQUEST_STATE,
    STATE_LIFETIME_SECONDS,
    InputRequest,
    InputRequiredResult,
    RequestStateSealer,
    handshake_params,
    input_required_answer,
    input_required_of,
    with_request_state,
)
from headgate.protocol.jsonrpc import encode_object
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR

_CALL_IS_OVER = McpResponse(
    error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": "The request that this is about is over"})
)

# Tenant and principal of the caller, and the handle of the call.
_CallKey = tuple[tuple[str, str], str]


class SuspendedCall:
    """One call in flight; it is the channel of the call, whichever request of the client waits for it."""

    def __init__(self, call: UpstreamCall, deliver: Callable[[UpstreamCall], Awaitable[McpResponse]]) -> None:
        # Not a secret, but the next one must not be predictable.
        self.handle = secrets.token_urlsafe(16)
        self.key: _CallKey = (call.request.caller.owner, self.handle)
        self.request = call.request
        # Whether a request of the client waits for the result or for input requests.
        self.awaited = True
        # Ends the call when the client does not respond in time.
        self.expiry: asyncio.TimerHandle | None = None
        self._input_requested = asyncio.Event()
        self._requested_input: dict[str, tuple[InputRequest, asyncio.Future[McpResponse]]] = {}
        self._last = 0
        on_progress = self._progress if call.request.on_progress is not None else None
        carried = msgspec.structs.replace(call.request, channel=self, on_progress=on_progress)
        self.task = asyncio.ensure_future(deliver(UpstreamCall(carried, call.item)))

    async def wait_for_result_or_input(self) -> None:
        # An input request may be withdrawn as soon as it was sent.
        while not self.task.done() and not self._requested_input:
            requested = asyncio.ensure_future(self._input_requested.wait())
            try:
                await asyncio.wait({self.task, requested}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                requested.cancel()

    @property
    def requested_input(self) -> dict[str, InputRequest]:
        """The input requests without a response."""
        return {key: input_request for key, (input_request, _) in self._requested_input.items()}

    def resume(self, request: McpRequest, responses: dict[str, Raw]) -> None:
        """The client has come back, with some answers."""
        self.request = request
        if self.expiry is not None:
            self.expiry.cancel()
        for key, response in responses.items():
            if key in self._requested_input:
                _, future = self._requested_input[key]
                if not future.done():
                    future.set_result(McpResponse(bytes(response)))
                self._forget(key)

    def drop_request(self) -> None:
        """The call is over and its client is away: only the outcome is kept, not what was sent."""
        self.request = McpRequest(caller=self.request.caller)

    def abandon(self, *why: object) -> None:
        """Cancel the call, with the reason if there is one."""
        if self.expiry is not None:
            self.expiry.cancel()
        self.task.cancel(*why)
        self.task.add_done_callback(_discard_result)

    # The channel of the call.

    def send_notification(self, method: str, params: bytes) -> None:
        if self.request.channel is not None:
            self.request.channel.send_notification(method, params)

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """The client's answer, which comes with its next request."""
        if self.task.done():
            # Sent together with the result: the client has no reason to come back.
            return _CALL_IS_OVER
        self._last += 1
        key = f"q{self._last}"
        future: asyncio.Future[McpResponse] = asyncio.get_running_loop().create_future()
        self._requested_input[key] = (InputRequest(method, Raw(params)), future)
        self._input_requested.set()
        try:
            return await future
        finally:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._requested_input.pop(key, None)
        if not self._requested_input:
            self._input_requested.clear()

    def _progress(self, params: dict[str, Raw]) -> None:
        if self.request.on_progress is not None:
            self.request.on_progress(params)


def _discard_result(task: "asyncio.Future[McpResponse]") -> None:
    if not task.cancelled() and task.exception() is None:
        result = task.result().result
        if not isinstance(result, bytes):
            result.close()


# A server that has not finished after so many rounds never will.
_MAX_ROUNDS = 10
# The pause before a call is repeated whose server only returned a requestState; doubled each time.
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 0.5
# Calls that ended while their client was away, whose outcome it may still fetch; the oldest go first.
_MAX_UNCLAIMED = 1000


class CallDelivery(Protocol):
    """Sends calls to their upstreams."""

    async def send_recorded(self, call: UpstreamCall) -> McpResponse:
        """The upstream's answer; raises HeadgateError saying what may have happened."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server sends its requests while it executes a call."""


class InputBridge:
    """Bridges requests during a call (handshake era) and `input_required` results (stateless era)."""

    def __init__(self, delivery: CallDelivery, state_sealer: RequestStateSealer) -> None:
        self._delivery = delivery
        self._state_sealer = state_sealer
        self._suspended_calls: dict[_CallKey, SuspendedCall] = {}
        self._unclaimed: dict[_CallKey, SuspendedCall] = {}

    def deliver_with_input(self, call: UpstreamCall) -> Coroutine[Any, Any, McpResponse]:
        """The upstream's result, or its input requests for a stateless client; raises HeadgateError."""
        # Not a coroutine of its own, because every call comes by here.
        request = call.request
        if request.session is not None:
            return self._deliver_in_session(call)
        if REQUEST_STATE in request.params and request.method in INPUT_METHODS:
            return self._resume(call)
        return self._deliver_stateless(call)

    # A client of the handshake era, and an upstream that requests input with its result.

    async def _deliver_in_session(self, call: UpstreamCall) -> McpResponse:
        answer = await self._delivery.send_recorded(call)
        if not answer.typed:
            # An upstream of the handshake era sends its requests during the call.
            return answer
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(_MAX_ROUNDS):
            requested_input = self._requested_input(call, answer)
            if requested_input is None:
                return answer
            if requested_input.input_requests:
                responses = await self._request_input(call, requested_input)
                if isinstance(responses, McpResponse):
                    return responses
            else:
                responses = {}
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
            again = _call_with_responses(call, requested_input, responses)
            answer = await self._delivery.send_recorded(again)
        if self._requested_input(call, answer) is None:
            return answer
        reason = f"questions after {_MAX_ROUNDS} rounds"
        raise InvalidUpstreamResponse(call.item.server, call.item.public_name, reason)

    def _requested_input(self, call: UpstreamCall, answer: McpResponse) -> InputRequiredResult | None:
        """The input that the answer requests; raises InvalidUpstreamResponse if the client has no support."""
        try:
            requested_input = input_required_of(answer)
        except ValueError as error:
            raise InvalidUpstreamResponse(call.item.server, call.item.public_name, str(error)) from error
        if requested_input is not None:
            for input_request in requested_input.input_requests.values():
                profile = call.request.profile
                if not profile.supports_input_request(input_request.method, bytes(input_request.params)):
                    unsupported = profile.unsupported_reason(input_request.method)
                    reason = f"a question ({input_request.method[:100]}), but {unsupported}"
                    raise InvalidUpstreamResponse(call.item.server, call.item.public_name, reason)
        return requested_input

    async def _request_input(
        self, call: UpstreamCall, requested_input: InputRequiredResult
    ) -> dict[str, Raw] | McpResponse:
        """The client's response to each input request, all sent at once; the first error ends the call."""
        tasks = [
            asyncio.ensure_future(_send_input_request(call, input_request))
            for input_request in requested_input.input_requests.values()
        ]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        responses: dict[str, Raw] = {}
        for key, answer in zip(requested_input.input_requests, answers, strict=True):
            if answer.error:
                return answer
            assert isinstance(answer.result, bytes)
            responses[key] = Raw(answer.result)
        return responses

    # A client of the stateless era.

    async def _deliver_stateless(self, call: UpstreamCall) -> McpResponse:
        asks_meanwhile = call.request.profile.accepts_input_requests and call.request.method in INPUT_METHODS
        if not asks_meanwhile or not self._delivery.sends_requests_during_calls(call.item.server):
            return self._with_sealed_state(call, await self._delivery.send_recorded(call))
        # Not limited here: the limit applies when a server requests input, and then ends another call.
        suspended_call = SuspendedCall(call, self._delivery.send_recorded)
        self._suspended_calls[suspended_call.key] = suspended_call
        suspended_call.task.add_done_callback(lambda _: self._on_call_done(suspended_call))
        return await self._wait_for_result_or_input(call, suspended_call)

    def _with_sealed_state(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        requested_input = self._requested_input(call, answer) if answer.typed else None
        if requested_input is None or requested_input.request_state is None:
            return answer
        state = self._state_sealer.seal_state("upstream", call, requested_input.request_state)
        return with_request_state(answer, state)

    async def _resume(self, call: UpstreamCall) -> McpResponse:
        request, responses = call.request, _input_responses(call)
        # Last, because a requestState is accepted once: the client can correct the rest and send it again.
        sealed_state = self._state_sealer.open_state(call)
        if sealed_state.kind == "upstream":
            params = {**request.params, REQUEST_STATE: Raw(msgspec.json.encode(sealed_state.content))}
            call = UpstreamCall(msgspec.structs.replace(request, params=params), call.item)
            return self._with_sealed_state(call, await self._delivery.send_recorded(call))
        suspended_call = self._suspended_calls.get((request.caller.owner, sealed_state.content))
        if suspended_call is None:
            raise RequestStateRefused(
                "the call that it belongs to does not wait at this gateway any more: "
                "it ended, or made room for the calls of other clients"
            )
        suspended_call.resume(request, responses)
        return await self._wait_for_result_or_input(call, suspended_call)

    async def _wait_for_result_or_input(
        self, call: UpstreamCall, suspended_call: SuspendedCall
    ) -> McpResponse:
        suspended_call.awaited = True
        try:
            await suspended_call.wait_for_result_or_input()
        except asyncio.CancelledError as cancelled:
            # The client has left; with a message it has cancelled the call.
            self._drop(suspended_call, *cancelled.args)
            raise
        if suspended_call.task.done():
            self._forget(suspended_call)
            # Which era the server is of may not have been known when the call began.
            return self._with_sealed_state(call, suspended_call.task.result())
        # It waits for as long as the requestState is valid.
        suspended_call.awaited = False
        suspended_call.expiry = asyncio.get_running_loop().call_later(
            STATE_LIFETIME_SECONDS, self._drop, suspended_call
        )
        state = self._state_sealer.seal_state("held", call, suspended_call.handle)
        return input_required_answer(suspended_call.requested_input, state)

    def _on_call_done(self, suspended_call: SuspendedCall) -> None:
        """The call is over; where its client is away, it may come back for the outcome."""
        if suspended_call.awaited or suspended_call.key not in self._suspended_calls:
            return
        suspended_call.drop_request()
        self._unclaimed[suspended_call.key] = suspended_call
        if len(self._unclaimed) > _MAX_UNCLAIMED:
            self._drop(next(iter(self._unclaimed.values())))

    def _forget(self, suspended_call: SuspendedCall) -> None:
        self._suspended_calls.pop(suspended_call.key, None)
        self._unclaimed.pop(suspended_call.key, None)

    def _drop(self, suspended_call: SuspendedCall, *why: object) -> None:
        self._forget(suspended_call)
        suspended_call.abandon(*why)

    def close(self) -> None:
        """Cancel all suspended calls, because the gateway ends."""
        for suspended_call in list(self._suspended_calls.values()):
            self._drop(suspended_call)


async def _send_input_request(call: UpstreamCall, input_request: InputRequest) -> McpResponse:
    channel = call.request.channel
    assert channel is not None
    return await channel.send_request(input_request.method, handshake_params(input_request))


def _call_with_responses(
    call: UpstreamCall, requested_input: InputRequiredResult, responses: dict[str, Raw]
) -> UpstreamCall:
    params = dict(call.request.params)
    for key in (INPUT_RESPONSES, REQUEST_STATE):
        params.pop(key, None)
    if responses:
        params[INPUT_RESPONSES] = Raw(encode_object(responses))
    if requested_input.request_state is not None:
        params[REQUEST_STATE] = Raw(msgspec.json.encode(requested_input.request_state))
    return UpstreamCall(msgspec.structs.replace(call.request, params=params), call.item)


def _input_responses(call: UpstreamCall) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(call.request.params.get(INPUT_RESPONSES, b"{}"), type=dict[str, Raw])
    except (DecodeError, UnicodeDecodeError) as error:
        raise RequestStateRefused(f"{INPUT_RESPONSES} is not an object") from error
