"""Name servers that fail, wait and change their minds (F39)."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.bystander import bystander
from campaign.host_faults import preloaded_faults, privileged, succeeds
from campaign.trial import Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.faults.dns_server import ZONE, dns_server
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, misbehaving, misbehaving_http
from testkit.waiting import eventually

_CONNECT_SECONDS = 2.0
_BOUND_SECONDS = _CONNECT_SECONDS + 1.5
# Many more than the default thread pool of asyncio has on a small machine.
_SLOW_SERVERS = 24
# A child is started in a thread: without a free one this would wait for the lookups.
_START_SECONDS = 3.0
# Two children, which end with their input.
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of one gateway: how they are looked up, and how that is made to fail."""

    way: str
    fail: Callable[[bool], None]
    # How often an address of a `flip` name was asked for.
    flips: Callable[[], int]
    wrapper: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def _names(directory: Path) -> AsyncIterator[_Names]:
    """By a DNS server and a resolv.conf in a mount namespace, else by a library that is loaded first."""
    if privileged() and await _may_bind(directory):
        async with dns_server() as server:
            file = _resolv_conf(directory, server.host)

            def fail(failing: bool) -> None:  # noqa: FBT001 (one of two ways with one signature)
                server.failing = failing

            yield _Names(
                "a DNS server, in a mount namespace with its own resolv.conf", fail,
                lambda: server.asked[f"flip.{ZONE}"], _in_namespace(file),
            )  # fmt: skip
        return
    with preloaded_faults(directory) as faults:
        yield _Names(
            "a library that replaces getaddrinfo", lambda failing: faults.fail_names(failing=failing),
            lambda: faults.names_asked, environment=faults.environment,
        )  # fmt: skip


def _resolv_conf(directory: Path, host: str) -> Path:
    file = directory / "resolv.conf"
    # Longer than the slow names take, so that it is the gateway which gives up.
    file.write_text(f"nameserver {host}\noptions timeout:15 attempts:1\n")
    return file


def _in_namespace(file: Path) -> tuple[str, ...]:
    script = f"mount --bind '{file}' /etc/resolv.conf && exec \"$@\""
    return "unshare", "-m", "sh", "-c", script, "sh"


async def _may_bind(directory: Path) -> bool:
    """Whether a mount namespace and port 53 of loopback are to be had."""
    if not await succeeds(*_in_namespace(_resolv_conf(directory, "127.0.0.1")), "true"):
        return False
    try:
        async with dns_server():
            return True
    except OSError:
        return False


def _entry(name: str, server: MisbehavingHttpProcess) -> dict[str, Any]:
    url = f"http://{name}.{ZONE}:{server.port}/mcp"
    settings = {"timeout": 10, "connectTimeout": _CONNECT_SECONDS, "retry": {"attempts": 1}}
    return {"url": url, "transport": "streamable-http", "proxy": "direct"} | settings


@case(
    "F39",
    f"DNS: SERVFAIL, answers after 10 s for {_SLOW_SERVERS} servers at once, two addresses in turn",
    "bounded by connectTimeout, nothing sent; others and off-loop work go on; one address per connection",
    quick_seconds=60,
    full_seconds=150,
)
async def bad_names(trial: Trial) -> None:
    """A name that cannot be resolved costs its own server and nothing else."""
    async with (
        _names(trial.directory) as names,
        misbehaving_http(trial.directory, "one", "--stateless") as one,
        misbehaving_http(
            trial.directory, "two", "--stateless", "--host", "127.0.0.2", "--port", str(one.port)
        ) as two,
    ):
        trial.measure("by", names.way)
        slow = {f"slow{number}": _entry(f"slow{number}", one) for number in range(_SLOW_SERVERS)}
        servers = {
            **slow, "servfail": _entry("servfail", one), "good": _entry("good", one),
            "flip": _entry("flip", one), "near": misbehaving(), "calm": misbehaving(),
        }  # fmt: skip
        async with trial.gateway(
            servers, ready=["near", "calm", "good", "flip"], spare_files=SPARE_FILES,
            wrapper=names.wrapper, environment=names.environment,
        ) as gateway, client(gateway.port, modern=True) as caller:  # fmt: skip
            await _unresolved(trial, caller)
            await _slow(trial, gateway, caller, list(slow))
            await _pinned(trial, caller, names, (one, two))
        await _starts_and_ends(trial, servers, names)


async def _unresolved(trial: Trial, caller: Client) -> None:
    answer = await caller.call("servfail:echo", {"text": "x"})
    trial.measure("SERVFAIL", f"{answer.outcome} {answer.seconds:.2f} s")
    _check_nothing_sent(trial, "SERVFAIL", answer)
    told = f"servfail.{ZONE}" in answer.text and "resol" in answer.text
    trial.check("SERVFAIL: the error names the host and the cause", told, answer.text)


def _check_nothing_sent(trial: Trial, label: str, answer: Answer) -> None:
    failure = answer.failure
    codes = ("CONNECTION_ERROR", "TEMPORARY_FAILURE", "SERVICE_UNAVAILABLE")
    refused = failure is not None and failure.code in codes and failure.effect == "none"
    trial.check(f"{label}: an error, nothing sent", refused, answer.outcome)
    in_time = answer.seconds <= _BOUND_SECONDS
    trial.check(f"{label}: within {_BOUND_SECONDS:g} s", in_time, f"{answer.seconds:.2f} s")


async def _slow(trial: Trial, gateway: AsyncGatewayProcess, caller: Client, slow: list[str]) -> None:
    """All slow names at once, again and again; meanwhile everything else is as it was."""
    rounds = trial.size(quick=1, full=8)
    answers: list[Answer] = []
    async with bystander(trial, gateway, "calm_echo"):
        for number in range(rounds):
            calls = [asyncio.create_task(caller.call(f"{name}:echo", {"text": "x"})) for name in slow]
            if number == 0:
                await _off_loop(trial, gateway, caller)
            answers += await asyncio.gather(*calls)
    refused = [answer for answer in answers if not answer.ok]
    longest = max(answer.seconds for answer in answers)
    trial.measure("slow names", f"{len(refused)} of {len(answers)} calls refused, {longest:.2f} s at most")
    # A later call may come when the answer of the name server has come.
    trial.check("slow: the first calls are refused", not any(answer.ok for answer in answers[: len(slow)]))
    for answer in refused:
        _check_nothing_sent(trial, "slow", answer)
    trial.check(f"slow: within {_BOUND_SECONDS:g} s", longest <= _BOUND_SECONDS, f"{longest:.2f} s")
    trial.measure("threads", procfs.threads(gateway.pid))
    trial.check("threads are bounded", procfs.threads(gateway.pid) <= 100, procfs.threads(gateway.pid))


async def _off_loop(trial: Trial, gateway: AsyncGatewayProcess, caller: Client) -> None:
    """Start a child, which takes a thread, and resolve another name."""
    os.kill((await gateway.servers())["near"]["pid"], signal.SIGKILL)
    restarted = await eventually(lambda: _answers(caller, "near_echo"), 30, "the child to be back")
    trial.measure("child back after", restarted, "s")
    trial.check(f"a child starts within {_START_SECONDS:g} s", restarted <= _START_SECONDS, restarted)
    found = await caller.call("good_echo", {"text": "resolved"})
    trial.measure("another name", f"{found.outcome} {found.seconds:.2f} s")
    trial.check("another name is resolved meanwhile", found.ok and found.seconds < 1, found.outcome)


async def _answers(caller: Client, tool: str) -> bool:
    return (await caller.call(tool, {"text": "x"})).ok


async def _pinned(
    trial: Trial,
    caller: Client,
    names: _Names,
    backends: tuple[MisbehavingHttpProcess, MisbehavingHttpProcess],
) -> None:
    """One connection has one address; a broken name server is felt only by the next connection."""
    count = trial.size(quick=50, full=500)
    # The first may open the connection; from then on nothing is looked up.
    await caller.call("flip_echo", {"text": "first"})
    before, asked = [backend.calls() for backend in backends], names.flips()
    names.fail(True)
    started = time.monotonic()
    answers = [await caller.call("flip_echo", {"text": "x"}) for _ in range(count)]
    names.fail(False)
    arrived = sorted(backend.calls() - was for backend, was in zip(backends, before, strict=True))
    trial.measure("flip-flop", f"{count} calls, {arrived} by address, {names.flips() - asked} lookups")
    trial.check("all are answered", all(answer.ok for answer in answers), {a.outcome for a in answers})
    trial.check("one address per connection", arrived == [0, count], arrived)
    trial.check("no lookup on an open connection", names.flips() == asked, names.flips() - asked)
    trial.measure("calls without a name server", f"{time.monotonic() - started:.2f} s")


async def _starts_and_ends(trial: Trial, servers: dict[str, Any], names: _Names) -> None:
    """Lookups that hang keep neither a child from starting nor the gateway from ending."""
    async with trial.gateway(
        servers, ready=[], stall_seconds=None, wrapper=names.wrapper, environment=names.environment
    ) as gateway:
        await gateway.wait_ready(["near", "good"])
        took = time.monotonic() - gateway.started
        trial.measure("ready beside slow names", took, "s")
        trial.check(f"others are ready within {_START_SECONDS:g} s", took <= _START_SECONDS, f"{took:.2f} s")
        took = await gateway.stop()
    trial.measure("ended in", took, "s")
    trial.check(f"ended within {_END_SECONDS:g} s", took <= _END_SECONDS, f"{took:.2f} s")
