"""Which call ends when too many wait for input of their clients."""

from headgate.domain.errors import Effect
from headgate.input_requests.errors import InputRequestWithdrawn
from headgate.upstream.notification_router import CallAwaitingInput, PendingInputLimits, PendingInputs

LIMITS = PendingInputLimits(total=10, per_server=7, per_client=5)


class Waits:
    """Calls by their names, and those that were ended."""

    def __init__(self) -> None:
        self.pending = PendingInputs(LIMITS)
        self.calls: dict[str, CallAwaitingInput] = {}
        self.ended: dict[str, InputRequestWithdrawn] = {}

    def ask(self, name: str, client: str, server: str = "forms") -> None:
        def end(error: InputRequestWithdrawn) -> None:
            self.ended[name] = error

        call = CallAwaitingInput(server, client, float(len(self.calls)), end)
        self.calls[name] = call
        self.pending.add(call)


def test_the_oldest_call_of_the_client_that_holds_most_ends_first() -> None:
    waits = Waits()
    waits.ask("quiet", "ann")
    for number in range(4):
        waits.ask(f"hoarded {number}", "bob")
    waits.ask("other", "cyd")
    waits.ask("one more", "dan")
    assert not waits.ended

    waits.ask("asked", "eve")

    assert list(waits.ended) == ["hoarded 0"]
    error = waits.ended["hoarded 0"]
    assert error.effect is Effect.UNKNOWN
    assert "'forms'" in error.message


def test_one_client_alone_ends_its_own_calls() -> None:
    waits = Waits()
    for number in range(8):
        waits.ask(f"call {number}", "bob")

    assert list(waits.ended) == ["call 0", "call 1", "call 2"]
    assert len(waits.pending) == LIMITS.per_client


def test_a_server_that_asks_everybody_leaves_room_for_other_servers() -> None:
    waits = Waits()
    waits.ask("elsewhere", "ann", server="mail")
    for number in range(20):
        waits.ask(f"call {number}", f"client {number}")

    assert "elsewhere" not in waits.ended
    assert len(waits.pending) == LIMITS.per_server + 1


def test_all_servers_together_are_bounded() -> None:
    waits = Waits()
    for number in range(30):
        waits.ask(f"call {number}", f"client {number}", server=f"server {number % 5}")

    assert len(waits.pending) == LIMITS.total
    assert list(waits.ended) == [f"call {number}" for number in range(20)]


def test_calls_that_were_answered_count_no_longer() -> None:
    waits = Waits()
    for number in range(30):
        waits.ask(f"call {number}", "bob")
        waits.pending.remove(waits.calls[f"call {number}"])
        waits.pending.remove(waits.calls[f"call {number}"])

    assert not waits.ended
    assert len(waits.pending) == 0


def test_a_client_at_its_own_limit_does_not_lift_that_of_the_server() -> None:
    waits = Waits()
    for number in range(LIMITS.per_client):
        waits.ask(f"mail {number}", "ann", server="mail")
    for number in range(5):
        waits.ask(f"call {number}", f"client {number % 5}")
    for number in range(5):
        waits.ask(f"ann {number}", "ann")

    held = [call for name, call in waits.calls.items() if name not in waits.ended and call.server == "forms"]
    assert len(held) == LIMITS.per_server
