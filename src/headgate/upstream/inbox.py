"""What an upstream says without being asked: progress, changed lists, requests of its own."""

import logging
from collections.abc import Callable

from msgspec import DecodeError, Raw

from headgate.domain.call import ProgressListener
from headgate.wire.envelope import Envelope, decode_object, encode_result
from headgate.wire.violations import METHOD_NOT_FOUND, encode_error

log = logging.getLogger("headgate.upstream")


class Inbox:
    """Hands each notification to whom it concerns, and answers each request."""

    def __init__(self, server: str, on_list_changed: Callable[[], None]) -> None:
        self._server = server
        self._on_list_changed = on_list_changed
        self._listeners: dict[int, ProgressListener] = {}
        self.noise = 0

    def listen(self, token: int, listener: ProgressListener) -> None:
        """Hand progress with this token to `listener`."""
        self._listeners[token] = listener

    def forget(self, token: int) -> None:
        """The call with this token is over."""
        self._listeners.pop(token, None)

    def take(self, envelope: Envelope) -> bytes | None:
        """Act on a notification, or return the answer to a request."""
        if envelope.id:
            return self._answer(envelope)
        if envelope.method == "notifications/progress":
            self._progress(envelope.params)
        elif envelope.method == "notifications/tools/list_changed":
            self._on_list_changed()
        return None

    def count_noise(self, what: str) -> None:
        """Something came that is no message, or an answer that nobody waits for."""
        self.noise += 1
        log.debug("noise", extra={"server": self._server, "what": what[:200]})

    def _answer(self, envelope: Envelope) -> bytes:
        if envelope.method == "ping":
            return encode_result(bytes(envelope.id), b"{}")
        return encode_error(
            bytes(envelope.id), METHOD_NOT_FOUND, f"Method not found: {envelope.method[:200]}"
        )

    def _progress(self, params: Raw) -> None:
        try:
            members = decode_object(params)
            token = int(bytes(members.pop("progressToken")))
        except (DecodeError, UnicodeDecodeError, KeyError, ValueError):
            self.count_noise("progress without a token of ours")
            return
        listener = self._listeners.get(token)
        if listener is None:
            self.count_noise("progress of a call that is over")
        else:
            listener(members)
