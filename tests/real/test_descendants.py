"""A process that left the process group of its server ends with the server, and with the gateway."""

import os
import signal
from collections.abc import Callable

import pytest

from testkit.clients.streaming_http import Stateless
from testkit.gateway_process import GatewayProcess
from testkit.procfs import still_alive
from testkit.upstreams import configuration, server_command, stdio_entry
from testkit.waiting import wait_until

# The server hears the end of its input and leaves; a gateway that is killed leaves it to the watchdog.
GONE_SECONDS = 10.0
Start = Callable[..., GatewayProcess]


def stop(gateway: GatewayProcess, server: int) -> None:
    gateway.stop()


def kill(gateway: GatewayProcess, server: int) -> None:
    gateway.kill()


def remove(gateway: GatewayProcess, server: int) -> None:
    gateway.write_config(configuration({}))


def crash(gateway: GatewayProcess, server: int) -> None:
    os.kill(server, signal.SIGKILL)


ENDS: list[Callable[[GatewayProcess, int], None]] = [stop, kill, remove, crash]
# Without its environment a process is found below its parent, which has to be there: a server that crashes is
# gone, and one whose gateway is killed hears the end of its input and may leave before the watchdog looks.
WITH_PARENT: list[Callable[[GatewayProcess, int], None]] = [stop, remove]
CASES = [(how, end) for how in ("setsid", "daemon") for end in ENDS] + [("bare", end) for end in WITH_PARENT]


@pytest.mark.parametrize(("how", "end"), CASES)
def test_a_process_in_a_session_of_its_own_ends_with_its_server(
    start_gateway: Start, how: str, end: Callable[[GatewayProcess, int], None]
) -> None:
    command = server_command("servers.process_spawner")
    gateway = start_gateway(configuration({"parent": stdio_entry(command)}))
    gateway.wait_until_ready("parent")
    reply = Stateless(gateway.url).call("parent_start", {"how": how})["result"]
    server, started = map(int, reply["content"][0]["text"].split())
    try:
        assert os.getsid(started) not in (os.getsid(server), os.getsid(0))
        end(gateway, server)
        wait_until(lambda: not still_alive({server, started}), GONE_SECONDS, "server and descendant are gone")
    finally:
        if still_alive({started}):
            os.kill(started, signal.SIGKILL)


def test_the_processes_of_another_server_are_left_alone(start_gateway: Start) -> None:
    command = server_command("servers.process_spawner")
    entry = stdio_entry(command)
    gateway = start_gateway(configuration({"one": entry, "two": entry}))
    gateway.wait_until_ready("one", "two")
    client = Stateless(gateway.url)
    texts = [client.call(f"{name}_start", {"how": "daemon"})["result"] for name in ("one", "two")]
    (_, first), (_, second) = (map(int, text["content"][0]["text"].split()) for text in texts)
    gateway.write_config(configuration({"two": entry}))
    wait_until(lambda: not still_alive({first}), GONE_SECONDS, "the first descendant is gone")
    assert still_alive({second}) == {second}
    gateway.stop()
    wait_until(lambda: not still_alive({second}), GONE_SECONDS, "the second descendant is gone")
