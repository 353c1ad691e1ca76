"""One end of a conversation with an upstream, held in memory."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.mcp_request import ClientBackChannel, ClientSession, McpRequest, McpResponse
from headgate.upstream.message_assembly import MalformedMessage, read_message
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.pending_requests import PendingRequests
from headgate.upstream.transport import OutgoingRequest, SendAttempt
from testkit.waiting import eventually

WAIT_SECONDS = 5.0
SAMPLING = profile_of(b'{"sampling":{}}')
SAID = McpResponse(b'{"role":"assistant", "n":1.0}')


def question(id: Any = "q", method: str = "sampling/createMessage") -> dict[str, Any]:
    """What a server may ask a client."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"maxTokens": 5}}


class Client:
    """A client that gets notifications and input requests; it answers when the test lets it."""

    def __init__(self, answer: McpResponse | None = None) -> None:
        self.told: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.withdrawn: list[str] = []
        self.answer: asyncio.Future[McpResponse] = asyncio.get_running_loop().create_future()
        if answer is not None:
            self.answer.set_result(answer)

    def send_notification(self, method: str, params: bytes) -> None:
        self.told.append((method, json.loads(params or b"{}")))

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        self.asked.append((method, json.loads(params or b"{}")))
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.withdrawn.append(method)
            raise


class RecordedServerEvents:
    """What an upstream said about itself."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.updates: list[Any] = []
        self.questions = 0
        self.acknowledgements = 0
        self.resumptions = 0
        self.troubles: list[str | None] = []

    def on_list_changed(self, capability: str, profile: ClientProfile) -> None:
        self.changes.append(capability)

    def on_resource_updated(self, params: bytes, owner: ClientSession | None) -> None:
        self.updates.append(json.loads(params))

    def on_subscription_acknowledged(self) -> None:
        self.acknowledgements += 1

    def on_stream_resumed(self) -> None:
        self.resumptions += 1

    def on_health_changed(self, reason: str | None) -> None:
        self.troubles.append(reason)

    def on_server_request(self) -> None:
        self.questions += 1


def outgoing(
    method: str = "tools/call",
    *,
    seconds: float = 60.0,
    most_seconds: float = 900.0,
    token: int = 0,
    progress: list[dict[str, Any]] | None = None,
    params: bytes = b"{}",
    name: str = "",
    client: ClientBackChannel | None = None,
    owner: ClientSession | None = None,
    headers: bytes = b"",
    idempotency_header: bytes = b"",
    on_late: Callable[[McpResponse], None] | None = None,
    late_seconds: float = 900.0,
) -> OutgoingRequest:
    """A request, a client's when it has a token; what is reported of its progress is put into `progress`."""

    def heard(told: dict[str, Raw]) -> None:
        assert progress is not None
        progress.append({key: json.loads(bytes(value)) for key, value in told.items()})

    request = McpRequest(
        caller=LOCAL_IDENTITY,
        channel=client,
        session=owner,
        on_progress=heard if progress is not None else None,
    )
    return OutgoingRequest(
        method=method,
        params=params,
        what="pay",
        name=name,
        timeout_seconds=seconds,
        max_timeout_seconds=most_seconds,
        token=token,
        request=request if token else None,
        headers=headers,
        idempotency_header=idempotency_header,
        on_late=on_late,
        late_seconds=late_seconds,
    )


class Conversation:
    """The requests of the gateway on one side, what the test says as the upstream on the other."""

    def __init__(self, profile: ClientProfile = PLAIN_PROFILE, owner: ClientSession | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.calls: list[asyncio.Task[McpResponse]] = []
        self.news = RecordedServerEvents()
        self.router = NotificationRouter("bank", self.news, profile, owner)
        self.pending = PendingRequests("bank", self._send, self.router)
        # Cleared, sending does not come to an end.
        self.writable = asyncio.Event()
        self.writable.set()
        self.send_error: Exception | None = None

    async def _send(self, message: bytes, sending: SendAttempt | None = None, /) -> None:
        if self.send_error is not None:
            raise self.send_error
        if sending is not None:
            sending.begun = True
        self.sent.append(json.loads(message))
        await self.writable.wait()

    async def ask(self, request: OutgoingRequest) -> "asyncio.Task[McpResponse]":
        """Send a request and go on as soon as the upstream has it."""
        before = len(self.sent)
        task = asyncio.create_task(self.pending.send_correlated(request))
        await self.heard(before + 1)
        return task

    async def call(self, **settings: Any) -> None:
        """Send a request whose answer is not what the test is about."""
        self.calls.append(await self.ask(outgoing(**settings)))

    async def heard(self, messages: int) -> None:
        """Wait until the upstream has got so many messages."""
        await eventually(lambda: len(self.sent) >= messages, WAIT_SECONDS, f"{messages} messages")

    def say(self, line: bytes | dict[str, Any]) -> None:
        """Let the upstream say something."""
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        try:
            message = read_message(data)
        except MalformedMessage as error:
            self.pending.handle_malformed(error)
        else:
            self.pending.handle_message(message)

    def reply(self, id: Any, **members: Any) -> None:
        """Let the upstream answer."""
        self.say({"jsonrpc": "2.0", "id": id, **(members or {"result": {"to": id}})})

    def progress(self, token: Any, **numbers: Any) -> None:
        """Let the upstream tell how far it is."""
        params = {"progressToken": token, **numbers}
        self.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
