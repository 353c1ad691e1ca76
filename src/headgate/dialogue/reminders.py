"""The reminder that a client hands back with its answers: sealed, and bound to who was asked for what."""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Protocol

import msgspec
from msgspec import DecodeError

from headgate.dialogue.questions import STATE
from headgate.domain.call import Call
from headgate.domain.errors import ReminderRefused
from headgate.wire.envelope import LARGE_BYTES

_PURPOSE = "requestState"
# People take their time over a question, but not for ever.
LIFE_SECONDS = 600.0
# Reminders that have been used are remembered for as long as they could be used again, but not more of them.
_MOST_USED = 100_000


class Seal(Protocol):
    """Seals text so that nobody else can read or change it."""

    def seal(self, purpose: str, content: bytes, seconds: float) -> str:
        """A token that can be opened for so long."""

    def open(self, purpose: str, token: str) -> bytes:
        """What was sealed; raises ValueError."""


class Reminder(msgspec.Struct, frozen=True):
    """What the gateway must know to go on."""

    # `upstream`: the server's own reminder; `held`: the call that waits here.
    kind: Literal["upstream", "held"]
    principal: str
    request: bytes
    content: str


class Reminders:
    """Seals reminders and opens each of them once."""

    def __init__(self, seal: Seal, now: Callable[[], float] = time.monotonic) -> None:
        self._seal = seal
        self._now = now
        self._used: dict[bytes, float] = {}

    def write(self, kind: Literal["upstream", "held"], call: Call, content: str) -> str:
        """A reminder for the client of this call."""
        principal = call.request.caller.principal
        reminder = Reminder(kind, principal, _digest(call), content)
        return self._seal.seal(_PURPOSE, msgspec.msgpack.encode(reminder), LIFE_SECONDS)

    def read(self, call: Call) -> Reminder:
        """What the client of this call was asked to hand back; raises ReminderRefused."""
        try:
            token = msgspec.json.decode(call.request.params[STATE], type=str)
            sealed = self._seal.open(_PURPOSE, token)
            reminder = msgspec.msgpack.decode(sealed, type=Reminder)
        except (DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ReminderRefused("it was not given by this gateway, was changed, or is too old") from error
        if reminder.principal != call.request.caller.principal or reminder.request != _digest(call):
            # The same words whoever it belongs to.
            raise ReminderRefused("it belongs to another request")
        self._use(token)
        return reminder

    def _use(self, token: str) -> None:
        now = self._now()
        digest = hashlib.sha256(token.encode()).digest()
        if self._used.get(digest, 0.0) > now:
            raise ReminderRefused("it was used before")
        self._used[digest] = now + LIFE_SECONDS
        # The first ones end first.
        while len(self._used) > _MOST_USED or next(iter(self._used.values())) <= now:
            del self._used[next(iter(self._used))]


def _digest(call: Call) -> bytes:
    """What the request asks for, in one spelling."""
    request = call.request
    canonical = bytes(request.params.get("arguments", b"null"))
    # Large ones must be the same bytes: to sort them takes too long.
    if len(canonical) <= LARGE_BYTES:
        with suppress(DecodeError, UnicodeDecodeError, RecursionError):
            canonical = msgspec.json.encode(msgspec.json.decode(canonical), order="deterministic")
    parts = (request.method.encode(), call.item.server.encode(), call.item.name.encode(), canonical)
    return hashlib.sha256(b"\0".join(parts)).digest()
