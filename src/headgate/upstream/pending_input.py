"""Calls that wait for input of their clients (elicitation, sampling, roots), bounded in number.

The limits apply when a server requires input, so no other call is ever refused for them.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from headgate.domain.mcp_request import McpRequest
from headgate.input_requests.errors import InputRequestWithdrawn


class PendingInputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls may wait for input at a time."""

    total: int = 1000
    per_server: int = 500
    # Of a session or, without sessions, of an HTTP connection.
    per_client: int = 100


class CallAwaitingInput:
    """One call that waits for input; `withdraw` ends it with the error that its caller gets."""

    __slots__ = ("client", "server", "since", "withdraw")

    def __init__(
        self, server: str, client: str, since: float, withdraw: Callable[[InputRequestWithdrawn], None]
    ) -> None:
        self.server = server
        self.client = client
        self.since = since
        self.withdraw = withdraw


class PendingInputs:
    """The calls of all servers that wait for input, the oldest first."""

    def __init__(self, limits: PendingInputLimits | None = None) -> None:
        self._limits = limits or PendingInputLimits()
        self._calls: dict[CallAwaitingInput, None] = {}
        self._by_server: Counter[str] = Counter()
        self._by_client: Counter[str] = Counter()
        # How many were ended in favour of others.
        self.withdrawn = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: CallAwaitingInput) -> None:
        """Count a call whose server requires input; beyond a limit another call ends."""
        self._calls[call] = None
        self._by_server[call.server] += 1
        self._by_client[call.client] += 1
        limits = self._limits
        if self._by_client[call.client] > limits.per_client:
            self._withdraw_oldest(lambda other: other.client == call.client)
        if self._by_server[call.server] > limits.per_server:
            self._withdraw_oldest(lambda other: other.server == call.server)
        if len(self._calls) > limits.total:
            self._withdraw_oldest(lambda other: True)

    def remove(self, call: CallAwaitingInput) -> None:
        """The call waits no more."""
        if call not in self._calls:
            return
        del self._calls[call]
        for counter, key in ((self._by_server, call.server), (self._by_client, call.client)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]

    def withdraw(self, call: CallAwaitingInput, reason: str) -> None:
        """End a call that waits for input."""
        self.remove(call)
        self.withdrawn += 1
        call.withdraw(InputRequestWithdrawn(call.server, reason))

    def _withdraw_oldest(self, concerned: Callable[[CallAwaitingInput], bool]) -> None:
        """End the oldest call of the client that has most of them."""
        calls = [call for call in self._calls if concerned(call)]
        counts = Counter(call.client for call in calls)
        # `max` takes the first of equals, which is the one with the oldest call.
        largest = max(counts, key=counts.__getitem__)
        oldest = next(call for call in calls if call.client == largest)
        self.withdraw(oldest, f"{len(self._calls)} calls wait for input of their clients")


def client_of(request: McpRequest | None) -> str:
    """The client that a call counts for: its session or, without sessions, its connection."""
    if request is None:
        return ""
    return request.session.id if request.session is not None else f"connection {request.connection}"
