"""One end of a conversation with an upstream, held in memory."""

import asyncio
import json
from typing import Any

from msgspec import Raw

from headgate.domain.call import Answer
from headgate.upstream.assembly import Garbled, read
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing
from headgate.upstream.pending import Pending
from tests.waiting import eventually

WAIT_SECONDS = 5.0


def outgoing(
    method: str = "tools/call",
    *,
    seconds: float = 60.0,
    most_seconds: float = 900.0,
    token: int = 0,
    progress: list[dict[str, Any]] | None = None,
    params: bytes = b"{}",
    name: str = "",
) -> Outgoing:
    """A request; what is reported of its progress is put into `progress`."""

    def heard(told: dict[str, Raw]) -> None:
        assert progress is not None
        progress.append({key: json.loads(bytes(value)) for key, value in told.items()})

    return Outgoing(
        method=method,
        params=params,
        what="pay",
        name=name,
        timeout_seconds=seconds,
        max_timeout_seconds=most_seconds,
        progress_token=token,
        on_progress=heard if progress is not None else None,
    )


class Conversation:
    """The requests of the gateway on one side, what the test says as the upstream on the other."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.list_changes = 0
        self.inbox = Inbox("bank", self._list_changed)
        self.pending = Pending("bank", self._send, self.inbox)
        # Cleared, sending does not come to an end.
        self.writable = asyncio.Event()
        self.writable.set()
        self.send_error: Exception | None = None

    def _list_changed(self) -> None:
        self.list_changes += 1

    async def _send(self, message: bytes) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(json.loads(message))
        await self.writable.wait()

    async def ask(self, request: Outgoing) -> "asyncio.Task[Answer]":
        """Send a request and go on as soon as the upstream has it."""
        before = len(self.sent)
        task = asyncio.create_task(self.pending.request(request))
        await self.heard(before + 1)
        return task

    async def heard(self, messages: int) -> None:
        """Wait until the upstream has got so many messages."""
        await eventually(lambda: len(self.sent) >= messages, WAIT_SECONDS, f"{messages} messages")

    def say(self, line: bytes | dict[str, Any]) -> None:
        """Let the upstream say something."""
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        try:
            message = read(data)
        except Garbled as error:
            self.pending.take_garbled(error)
        else:
            self.pending.take(message)

    def reply(self, id: Any, **members: Any) -> None:
        """Let the upstream answer."""
        self.say({"jsonrpc": "2.0", "id": id, **(members or {"result": {"to": id}})})

    def progress(self, token: Any, **numbers: Any) -> None:
        """Let the upstream tell how far it is."""
        params = {"progressToken": token, **numbers}
        self.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
