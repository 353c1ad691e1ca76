"""A large answer that cannot be written to disk costs its own call, and the reason is true."""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Message, Stateless
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import announcing, configuration, lines_of, server_command, stdio_entry
from testkit.waiting import wait_until

WAIT_SECONDS = 20.0
LARGE = 2 * 1024 * 1024
# The answer that is in the middle of being written is larger, every other file is smaller.
MOST_FILE_BYTES = 1536 * 1024
LOST = "large answers are lost"
Start = Callable[..., GatewayProcess]


@contextmanager
def payments(transport: str, journal: Path) -> Iterator[Message]:
    """The configuration of a server that notes its payments in the journal."""
    command = server_command("servers.payments", journal, transport)
    if transport == "stdio":
        yield stdio_entry(command)
        return
    with announcing(command) as port:
        origin = f"http://127.0.0.1:{port}"
        yield {"url": f"{origin}/sse", "transport": "sse"} if transport == "sse" else {"url": f"{origin}/mcp"}


def fill(gateway: GatewayProcess) -> None:
    """No file may grow any more, as on a disk without room."""
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, resource.RLIM_INFINITY))


def block(gateway: GatewayProcess) -> None:
    """Nothing can be created where large answers go."""
    spool = gateway.data_dir / "spool"
    if spool.is_dir():
        spool.rmdir()
    spool.write_text("")


def pay(gateway: GatewayProcess, name: str, key: str = "", **arguments: Any) -> Message:
    meta = {"_meta": {"io.headgate/idempotencyKey": key}} if key else {}
    reply = Stateless(gateway.url).call("payments_pay", {"name": name, **arguments}, **meta)
    result: Message = reply["result"]
    return result


def error_of(result: Message) -> Message:
    error: Message = result["_meta"]["io.headgate/error"]
    return error


@pytest.mark.parametrize("spoil", [fill, block])
@pytest.mark.parametrize("transport", ["stdio", "json", "stream", "sse"])
def test_an_answer_that_cannot_be_written_costs_its_own_call(
    start_gateway: Start, tmp_path: Path, transport: str, spoil: Callable[[GatewayProcess], None]
) -> None:
    journal, wait_for = tmp_path / "journal", tmp_path / "go on"
    with payments(transport, journal) as entry, ThreadPoolExecutor(8) as pool:
        gateway = start_gateway(configuration({"payments": entry}))
        gateway.wait_until_ready("payments")
        spoil(gateway)
        held = [pool.submit(pay, gateway, f"held {n}", f"key {n}", wait_for=str(wait_for)) for n in range(5)]
        wait_until(lambda: len(lines_of(journal)) == 5, WAIT_SECONDS, "five payments under way")
        lost = [pay(gateway, "large", size=LARGE) for _ in range(12)]
        wait_for.touch()
        assert [one.result(WAIT_SECONDS)["content"][0]["text"] for one in held] == ["x"] * 5
        assert {error_of(one)["code"] for one in lost} == {"SERVICE_UNAVAILABLE"}
        assert {error_of(one)["effect"] for one in lost} == {"done"}
        assert all("could not be written to disk" in one["content"][0]["text"] for one in lost), lost[0]
        # None was sent again, and neither the connection nor the breaker has suffered.
        assert lines_of(journal).count("large") == 12
        server = gateway.servers()["payments"]
        assert (server["state"], server.get("restarts", 0)) == ("ready", 0)
        assert pay(gateway, "small")["content"][0]["text"] == "x"
        assert gateway.log().count(LOST) == 1, gateway.log()


@pytest.mark.parametrize("transport", ["stdio", "json"])
def test_a_payment_whose_answer_is_lost_is_known_as_done(
    start_gateway: Start, tmp_path: Path, transport: str
) -> None:
    journal = tmp_path / "journal"
    with payments(transport, journal) as entry:
        gateway = start_gateway(configuration({"payments": entry}))
        gateway.wait_until_ready("payments")
        block(gateway)
        first = pay(gateway, "rent", "march", size=LARGE)
        again = pay(gateway, "rent", "march", size=LARGE)
        assert error_of(first)["effect"] == "done"
        assert first["_meta"]["io.headgate/operation"]["state"] == "done"
        assert not again.get("isError")
        assert again["content"][0]["text"].startswith("This call was carried out")
        assert again["_meta"]["io.headgate/operation"]["duplicate"] is True
        assert lines_of(journal) == ["rent"]
        # With room again the next one is answered whole, or as an excerpt of the whole.
        (gateway.data_dir / "spool").unlink()
        assert not pay(gateway, "gas", size=LARGE).get("isError")
