"""A configuration that names its own gateway starts no gateways and lists nothing twice; the rest works."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.faults.tcp_proxy import FaultProxy, Faults
from testkit.gateway_process import HOST, GatewayProcess, free_port, running_gateway
from testkit.network import serving
from testkit.procfs import descendants
from testkit.upstreams import configuration, echo_listing_command, stdio_entry, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import call, text
from tests.real.mcp_clients import McpClients, words

START_SECONDS = 60.0
# Long enough for several generations of gateways, each of which takes well under a second to start.
WATCH_SECONDS = 3.0
PING = {"name": "ping", "description": "Say it again.", "inputSchema": {"type": "object"}}
SERVE = [sys.executable, "-m", "headgate", "serve"]
ITSELF = "the server 'self' is this gateway itself, so it is not connected; remove its entry from the config"
BACK = "leads back to this gateway (a loop), so it is not connected; remove its entry here, or the entry of"


def own_server(place: Path) -> dict[str, Any]:
    place.mkdir(parents=True, exist_ok=True)
    listing = place / "m.json"
    write_listing(listing, [PING])
    return stdio_entry(echo_listing_command(listing))


def gateways(gateway: GatewayProcess) -> set[int]:
    """The gateways that the gateway has started, however far down."""
    return {pid for pid in descendants(gateway.pid) if b"serve" in command_of(pid).split(b"\0")}


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def most_gateways(gateway: GatewayProcess) -> int:
    """The largest number of gateways that it ran at once, watched for a while."""
    until = time.monotonic() + WATCH_SECONDS
    counts = [0]

    def watched() -> bool:
        counts.append(len(gateways(gateway)))
        return time.monotonic() > until

    wait_until(watched, WATCH_SECONDS + START_SECONDS, "watched")
    return max(counts)


def refused(gateway: GatewayProcess, name: str) -> str:
    """Why the server is not connected, once that is known."""
    wait_until(lambda: gateway.servers()[name]["state"] == "failed", START_SECONDS, f"{name} is refused")
    reason: str = gateway.servers()[name]["last_error"]
    return reason


def tools_of(gateway: GatewayProcess) -> list[str]:
    return [tool["name"] for tool in Stateless(gateway.url).ask("tools/list", {})["result"]["tools"]]


def works(gateway: GatewayProcess, name: str) -> bool:
    return text(call(Handshaker(gateway.url), name, n=1)) == '{"n": 1}'


# A gateway that starts itself.


def commands(place: Path) -> dict[str, dict[str, Any]]:
    """Entries that start the gateway whose configuration lies at that place."""
    config, link = place / "headgate.json", place / "link.json"
    data = str(place / "child-data")
    line = f"{sys.executable} -m headgate serve --transport stdio --config {config} --data-dir {data}"
    script = place / "wrapper.py"
    script.write_text(f"import subprocess, sys\nsys.exit(subprocess.run({line.split()}).returncode)\n")
    link.symlink_to(config)
    bare = place / "bare.sh"
    bare.write_text(f"exec env -i {line}-$$\n")
    plain = ["--transport", "stdio", "--data-dir", data]
    return {
        "direct": stdio_entry([*SERVE, "--config", str(config), *plain]),
        "equals": stdio_entry([*SERVE, *plain, f"--config={config}"]),
        "relative": stdio_entry([*SERVE, *plain, "--config", "headgate.json"], cwd=str(place)),
        "shell": stdio_entry(["sh", "-c", line]),
        "exec": stdio_entry(["sh", "-c", f"cd / && exec {line}"]),
        # As sudo and others do: nothing of the environment is handed on.
        "bare": stdio_entry(["sh", str(bare)]),
        "wrapped": stdio_entry([sys.executable, str(script)]),
        "link": stdio_entry([*SERVE, *plain, "--config", str(link)]),
        "found": stdio_entry([*SERVE, *plain], cwd=str(place)),
        "variable": stdio_entry([*SERVE, *plain], env={"HEADGATE_CONFIG": str(config)}),
        "http": stdio_entry(["sh", "-c", line.replace("stdio", "http") + f" --port {free_port()}"]),
    }


@pytest.mark.parametrize(
    "kind",
    ["direct", "equals", "relative", "shell", "exec", "bare", "wrapped", "link", "found", "variable", "http"],
)
def test_a_gateway_that_is_its_own_server_over_stdio_is_refused(tmp_path: Path, kind: str) -> None:
    gateway_place = tmp_path / "gateway"
    gateway_place.mkdir()
    entry = commands(gateway_place)[kind]
    config = configuration({"self": entry, "m": own_server(tmp_path)})
    with running_gateway(config, gateway_place, start_seconds=START_SECONDS) as gateway:
        reason = refused(gateway, "self")
        assert reason.startswith("the server 'self' ")
        assert "this gateway" in reason
        assert "remove its entry" in reason
        assert reason in gateway.log()
        if kind in ("direct", "equals", "relative", "shell", "exec"):
            assert reason.startswith(ITSELF)
        wait_until(lambda: not gateways(gateway), START_SECONDS, "what was started has ended")
        assert most_gateways(gateway) == 0
        gateway.wait_until_ready("m")
        assert gateway.get("/ready").status == 200
        assert "restarts" not in gateway.servers()["self"]
        assert works(gateway, "m_ping")
        assert tools_of(gateway) == ["m_ping"]


@pytest.mark.asyncio
async def test_clients_of_a_gateway_on_stdio_are_served_the_rest(tmp_path: Path) -> None:
    gateway_place = tmp_path / "gateway"
    gateway_place.mkdir()
    servers = {"self": commands(gateway_place)["wrapped"], "m": own_server(tmp_path)}
    with running_gateway(configuration(servers), gateway_place, start_seconds=START_SECONDS) as gateway:
        guests = McpClients(gateway)
        # A gateway of its own, with the same configuration: no other gateway has started it.
        mcp_client = await guests.mcp_client("stdio", "legacy")
        assert list(await mcp_client.tools()) == ["m_ping"]
        assert json.loads(words(await mcp_client.client.call_tool("m_ping", {"n": 1}))) == {"n": 1}
        await guests.leave()


def test_an_entry_that_is_the_gateway_is_refused_while_it_runs(tmp_path: Path) -> None:
    gateway_place = tmp_path / "gateway"
    gateway_place.mkdir()
    servers = {"m": own_server(tmp_path)}
    with running_gateway(configuration(servers), gateway_place, start_seconds=START_SECONDS) as gateway:
        more = {"self": commands(gateway_place)["found"], "web": {"url": gateway.url}}
        gateway.write_config(configuration(servers | more))
        wait_until(lambda: {"self", "web"} <= gateway.servers().keys(), START_SECONDS, "the entries are read")
        assert "this gateway" in refused(gateway, "self")
        assert "is this gateway itself" in refused(gateway, "web")
        gateway.write_config(configuration(servers))
        wait_until(lambda: gateway.servers().keys() == {"m"}, START_SECONDS, "the entries are gone")
        assert works(gateway, "m_ping")


def test_the_documents_of_the_same_configuration_may_be_a_server_of_their_own(tmp_path: Path) -> None:
    gateway_place = tmp_path / "gateway"
    gateway_place.mkdir()
    start = [sys.executable, "-m", "headgate", "knowledge", "serve", "--transport", "stdio"]
    place = ["--config", str(gateway_place / "headgate.json"), "--data-dir", str(tmp_path / "data")]
    config = configuration({"docs": stdio_entry([*start, *place])})
    with running_gateway(config, gateway_place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("docs", seconds=START_SECONDS)
        assert "docs_semantic_search" in tools_of(gateway)


# A gateway that connects to itself.


@contextmanager
def forwarder(port: int, *replaced: tuple[bytes, bytes]) -> Iterator[int]:
    """Forward connections to a port, with some bytes replaced by others of the same length."""
    with serving(FaultProxy(port, Faults(replacements=replaced)).relay) as listening:
        yield listening


def test_every_address_of_the_gateway_itself_is_refused(tmp_path: Path) -> None:
    port = free_port()
    paths = ["/mcp", "/mcp/", "/mcp/slim", "/mcp/search", "/sse", "/sse/full", "/mcp/sse"]
    addresses = [f"http://{host}:{port}{path}" for host in (HOST, "localhost", "0.0.0.0") for path in paths]
    servers = {
        f"self{number}": {"url": url} | ({"type": "sse"} if "/sse" in url else {})
        for number, url in enumerate(addresses)
    }
    config = configuration({**servers, "m": own_server(tmp_path)})
    with running_gateway(config, tmp_path / "gateway", port=port, start_seconds=START_SECONDS) as gateway:
        for name in servers:
            assert refused(gateway, name).startswith(ITSELF.replace("self", name, 1))
        gateway.wait_until_ready("m")
        assert gateway.get("/ready").status == 200
        assert tools_of(gateway) == ["m_ping"]


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("replaced", [(), ((b"via: ", b"xia: "),)], ids=["forwarded", "stripped"])
def test_an_address_that_hides_the_gateway_is_refused(
    tmp_path: Path, path: str, replaced: tuple[tuple[bytes, bytes], ...]
) -> None:
    port = free_port()
    with forwarder(port, *replaced) as hidden:
        entry = {"url": f"http://{HOST}:{hidden}{path}"} | ({"type": "sse"} if path == "/sse" else {})
        config = configuration({"self": entry, "m": own_server(tmp_path)}, allowedHosts=[f"{HOST}:{hidden}"])
        with running_gateway(
            config, tmp_path / "gateway", port=port, start_seconds=START_SECONDS, wait_for_servers=False
        ) as gateway:
            reason = refused(gateway, "self")
            # The header is seen first, and where it is stripped, the greeting tells.
            assert ("is this gateway itself" if replaced else "leads back to this gateway") in reason
            assert "remove its entry" in reason
            gateway.wait_until_ready("m")
            assert works(gateway, "m_ping")
            assert tools_of(gateway) == ["m_ping"]


def test_a_request_that_has_passed_another_gateway_is_answered(tmp_path: Path) -> None:
    with running_gateway(configuration({"m": own_server(tmp_path)}), tmp_path / "gateway") as gateway:
        client = Stateless(gateway.url)
        stream = client.send("POST", {"Via": "1.1 headgate-0123456789abcdef, 1.1 proxy"}, {})
        assert stream.status != 508
        stream.close()


# Two gateways.


@contextmanager
def two_gateways(place: Path, *, at_once: bool) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """Two gateways on HTTP, each of which has the other as a server."""
    ports = {"a": free_port(), "b": free_port()}
    stack = ExitStack()

    def start(name: str) -> GatewayProcess:
        far = "b" if name == "a" else "a"
        there = {"url": f"http://{HOST}:{ports[far]}/mcp"}
        config = configuration({"m": own_server(place / name), far: there})
        directory = place / name / "gateway"
        return stack.enter_context(
            running_gateway(
                config, directory, port=ports[name], start_seconds=START_SECONDS, wait_for_servers=False
            )
        )

    with stack:
        if at_once:
            with ThreadPoolExecutor(2) as pool:
                first, second = pool.map(start, ["a", "b"])
        else:
            first, second = start("a"), start("b")
        yield first, second


@pytest.mark.parametrize("at_once", [False, True], ids=["one_after_the_other", "at_once"])
def test_two_gateways_that_have_each_other_end_the_loop(tmp_path: Path, at_once: bool) -> None:  # noqa: FBT001
    with two_gateways(tmp_path, at_once=at_once) as (a, b):
        a.wait_until_ready("m", seconds=START_SECONDS)
        b.wait_until_ready("m", seconds=START_SECONDS)

        def ended() -> list[str]:
            states = [(a.servers()["b"], "b"), (b.servers()["a"], "a")]
            return [one["last_error"] for one, _ in states if one["state"] == "failed"]

        wait_until(lambda: bool(ended()), 2 * START_SECONDS, "the loop is found")
        for reason in ended():
            assert BACK in reason
        until = time.monotonic() + WATCH_SECONDS
        wait_until(lambda: time.monotonic() > until, START_SECONDS, "whatever grows has grown")
        for gateway, far in ((a, "b"), (b, "a")):
            assert set(tools_of(gateway)) <= {"m_ping", f"{far}_m_ping"}
            assert works(gateway, "m_ping")


def test_two_gateways_that_start_each_other_end_the_loop(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "gateway", tmp_path / "b"
    first.mkdir(parents=True)
    servers = {"m": own_server(second)}
    start = [*SERVE, "--transport", "stdio", "--config"]
    back = stdio_entry([*start, str(first / "headgate.json"), "--data-dir", str(second / "back")])
    (second / "headgate.json").write_text(json.dumps(configuration(servers | {"a": back})))
    there = stdio_entry([*start, str(second / "headgate.json"), "--data-dir", str(second / "data")])
    config = configuration({"m": own_server(tmp_path), "b": there})
    with running_gateway(config, first, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("m", "b", seconds=START_SECONDS)
        assert most_gateways(gateway) <= 2
        wait_until(lambda: len(gateways(gateway)) == 1, START_SECONDS, "only the other gateway runs")
        assert set(tools_of(gateway)) == {"m_ping", "b_m_ping"}
        assert works(gateway, "b_m_ping")
        assert any("leads back" in line for line in gateway.servers()["b"]["stderr_tail"])


def test_a_gateway_that_was_started_does_not_connect_to_the_one_that_did(tmp_path: Path) -> None:
    port = free_port()
    servers = {"m": own_server(tmp_path / "b"), "a": {"url": f"http://{HOST}:{port}/mcp"}}
    (tmp_path / "b" / "headgate.json").write_text(json.dumps(configuration(servers)))
    start = [*SERVE, "--transport", "stdio", "--config", str(tmp_path / "b" / "headgate.json")]
    there = stdio_entry([*start, "--data-dir", str(tmp_path / "b" / "data")])
    config = configuration({"m": own_server(tmp_path), "b": there})
    with running_gateway(config, tmp_path / "a", port=port, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("m", "b", seconds=START_SECONDS)
        wait_until(
            lambda: any(BACK in line for line in gateway.servers()["b"]["stderr_tail"]),
            START_SECONDS,
            "the gateway behind says so",
        )
        assert set(tools_of(gateway)) == {"m_ping", "b_m_ping"}


# Gateways behind gateways that are no loop.


def test_another_gateway_is_a_server_like_any_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        inner = configuration({"m": own_server(tmp_path / "inner")})
        last = stack.enter_context(running_gateway(inner, tmp_path / "last", start_seconds=START_SECONDS))
        middle_config = tmp_path / "middle" / "headgate.json"
        middle_config.parent.mkdir()
        middle_config.write_text(json.dumps(configuration({"last": {"url": last.url}})))
        start = [*SERVE, "--transport", "stdio", "--config", str(middle_config)]
        servers = {
            "middle": stdio_entry([*start, "--data-dir", str(tmp_path / "middle" / "data")]),
            # The same gateway on two ways is no loop.
            "last": {"url": last.url},
            "old": {"url": last.sse_url, "type": "sse"},
        }
        running = running_gateway(configuration(servers), tmp_path / "first", start_seconds=START_SECONDS)
        first = stack.enter_context(running)
        first.wait_until_ready(*servers, seconds=START_SECONDS)
        names = {"middle_last_m_ping", "last_m_ping", "old_m_ping"}
        assert set(tools_of(first)) == names
        assert all(works(first, name) for name in names)
        assert len(gateways(first)) == 1


def test_a_started_gateway_says_so_without_serving(tmp_path: Path) -> None:
    config = tmp_path / "headgate.json"
    config.write_text(json.dumps(configuration({"m": own_server(tmp_path)})))
    chain = {"HEADGATE_CHAIN": ",".join(f"{number:016x}/" for number in range(8))}
    done = subprocess.run(
        [*SERVE, "--transport", "stdio", "--config", str(config), "--data-dir", str(tmp_path / "data")],
        input=b'{"jsonrpc":"2.0","id":"x","method":"initialize"}\n{"jsonrpc":"2.0","method":"n"}\nnoise\n',
        capture_output=True,
        timeout=START_SECONDS,
        env={**os.environ, **chain},
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert answer["id"] == "x"
    assert "more than 8 gateways have started one another; remove the entry" in answer["error"]["message"]
    assert answer["error"]["data"]["io.headgate/loop"] is True
    assert b"more than 8 gateways" in done.stderr
