"""What must not travel: credentials of clients to servers (A20), code in arguments and variables (A27)."""

import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign.trial import Trial, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import Answer, Client
from testkit.misbehaving_upstreams import misbehaving_http, recorder, recorder_sse
from testkit.waiting import eventually

# An idle connection or two to each HTTP upstream may be kept for the next call.
_SPARE_FILES = 10
_CREDENTIALS = (
    "Authorization: Bearer {}",
    "Proxy-Authorization: Basic {}",
    "Cookie: session={}; other={}",
    "X-API-Key: {}",
    "X-Auth-Token: {}",
    "X-Amz-Security-Token: {}",
    "Private-Token: {}",
    "X-Forwarded-Access-Token: {}",
    "Idempotency-Key-Secret: {}",
)


# A server that ends, and says why in words that quote the secret of its entry.
_LEAKS = """
import json, os, sys
secret = os.environ["CAMPAIGN_TOKEN"]
print(f"tried {secret} and failed", file=sys.stderr)
print(json.dumps({"env": dict(os.environ)}), file=sys.stderr)
print(f"GET https://user:{secret}@h/?q={secret} with Bearer {secret}", file=sys.stderr)
sys.exit(1)
"""


async def _has_failed(gateway: AsyncGatewayProcess) -> bool:
    return bool((await gateway.servers())["leaky"]["state"] == "failed")


class _TaintedClient(Client):
    """A client that sends a credential of every kind with each of its requests."""

    def __init__(self, port: int, canary: str, *, modern: bool) -> None:
        super().__init__(port, modern=modern)
        self._lines = "".join(f"\r\n{line.replace('{}', canary)}" for line in _CREDENTIALS).encode()

    async def exchange(self, request: bytes, take: Callable[[bytes], object] | None = None) -> Answer:
        return await super().exchange(request.replace(b"\r\n", self._lines + b"\r\n", 1), take)


@case(
    "A20", "clients send credentials of nine kinds with every request, to four upstreams", "0 bytes upstream"
)
async def taint(trial: Trial) -> None:
    """No byte of a client's credential reaches an upstream, a child's variables, the disk or a page."""
    canary = f"clientcanary{secrets.token_hex(8)}"
    rounds = trial.size(quick=3, full=200)
    place = trial.directory
    leaky = {"command": sys.executable, "args": ["-c", _LEAKS], "maxRestarts": 1}
    async with (
        misbehaving_http(place, "session") as session,
        misbehaving_http(place, "stateless", "--stateless") as stateless,
        recorder_sse(place, "sse") as sse,
    ):
        servers = {
            "stdio": recorder(place, "stdio"),
            "session": session.entry(),
            "stateless": stateless.entry(),
            "sse": {"url": f"http://127.0.0.1:{sse}/sse", "transport": "sse"},
        }
        entries = servers | {"leaky": leaky}
        async with trial.gateway(entries, ready=servers, spare_files=_SPARE_FILES, spare_lines=2) as gateway:
            await eventually(lambda: _has_failed(gateway), 15, "the end of the server that prints its secret")
            answered = 0
            for modern in (False, True):
                answered += await _visit(gateway, canary, rounds, modern=modern)
            await _legacy_sse(gateway, canary)
            trial.measure("calls", answered)
            trial.check("every call is answered", answered == rounds * 2 * len(servers), answered)
            children = b"".join(map(_of_process, procfs.descendants(gateway.pid)))
            trial.check("no child has it", canary.encode() not in children)
            await _check_gateway(trial, gateway, canary)
    records = {path.name: path.read_text() for path in place.glob("*.jsonl")}
    trial.measure("bytes recorded upstream", sum(map(len, records.values())))
    trial.check("all four upstreams recorded", len(records) == 4 and all(records.values()), sorted(records))
    tainted = [name for name, text in records.items() if canary in text]
    trial.measure("bytes of it upstream", sum(text.count(canary) for text in records.values()))
    trial.check("nothing reached an upstream", not tainted, tainted)


async def _visit(gateway: AsyncGatewayProcess, canary: str, rounds: int, *, modern: bool) -> int:
    caller = _TaintedClient(gateway.port, canary, modern=modern)
    try:
        await caller.open()
        for method in ("tools/list", "resources/list", "prompts/list"):
            await caller.request(method)
        await caller.request("resources/read", {"uri": "file:///one"})
        await caller.request("prompts/get", {"name": "stdio_ask"})
        tools = ("stdio_echo", "session_echo", "stateless_echo", "sse_echo")
        answers = [await caller.call(tool, {"text": "x"}) for tool in tools for _ in range(rounds)]
        return sum(answer.ok for answer in answers)
    finally:
        caller.close()


async def _legacy_sse(gateway: AsyncGatewayProcess, canary: str) -> None:
    """One call of a client of the oldest transport."""
    lines = dict(line.replace("{}", canary).split(": ", 1) for line in _CREDENTIALS)
    async with http1.connected(gateway.port) as stream, http1.connected(gateway.port) as posting:
        stream.writer.write(
            http1.request(gateway.port, "GET", "/sse", {"Accept": "text/event-stream"} | lines)
        )
        await stream.head()
        while not (line := (await stream.reader.readline()).decode()).startswith("data: /"):
            pass
        info = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        call = {"name": "stdio_echo", "arguments": {}}
        for number, (method, params) in enumerate((("initialize", info), ("tools/call", call))):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            fields = {"Content-Type": "application/json"} | lines
            body = json.dumps(message).encode()
            await posting.exchange(http1.request(gateway.port, "POST", line[6:].strip(), fields, body))
            while f'"id":{number}' not in (await stream.reader.readline()).decode().replace(" ", ""):
                pass


async def _check_gateway(trial: Trial, gateway: AsyncGatewayProcess, canary: str) -> None:
    for path in ("/", "/ready", "/metrics", "/listing"):
        trial.check(f"{path} does not show it", canary.encode() not in (await gateway.get(path)).body)
    trial.check("the log does not have it", canary not in gateway.log.read_text())


def _of_process(pid: int) -> bytes:
    try:
        return procfs.command(pid) + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


# Variables that load code of their author's choice, in the gateway's own environment.
_LOADERS = {
    "NODE_OPTIONS": "--require=/nowhere/evil.js",
    "LD_PRELOAD": "/nowhere/evil.so",
    "LD_AUDIT": "/nowhere/evil.so",
    "PYTHONPATH": "/nowhere/evil",
    "PYTHONSTARTUP": "/nowhere/evil.py",
    "BASH_ENV": "/nowhere/evil.sh",
    "GIT_SSH_COMMAND": "/nowhere/evil",
    "PERL5OPT": "-Mevil",
    "RUBYOPT": "-revil",
    "JAVA_TOOL_OPTIONS": "-javaagent:/nowhere/evil.jar",
}


@case("A27", "`--`, shell syntax, newlines, zero bytes in args, env, headers; loaders in the environment",
      "stripped, refused or passed as one argument; no command runs")  # fmt: skip
async def injection(trial: Trial) -> None:
    """Nothing becomes another argument, variable, header or command."""
    place, made = trial.directory, trial.directory / "made"
    hostile = [
        "--",
        "-c",
        f"$(touch {made})",
        f"; touch {made}",
        f"a\ntouch {made}",
        "`id`",
        "--config=/etc/passwd",
    ]
    variables = {"LINES": "one\nLD_PRELOAD=/nowhere/evil.so", "SHELL_LIKE": f"$(touch {made})"}
    plain = recorder(place, "plain", *hostile) | {"env": variables}
    refused: dict[str, dict[str, Any]] = {
        "zero in args": plain | {"args": ["a\0b"]},
        "zero in env": plain | {"env": {"A": "a\0b"}},
        "equals in a name": plain | {"env": {"LD_PRELOAD=/nowhere/evil.so": "x"}},
        "newline in the command": plain | {"command": f"{sys.executable}\n-c"},
        "newline in a header": {
            "url": "http://127.0.0.1:9/mcp",
            "headers": {"X-A": "a\r\nAuthorization: evil"},
        },
        "newline in the name of a header": {
            "url": "http://127.0.0.1:9/mcp",
            "headers": {"X-A: b\r\nX-B": "a"},
        },
        "newline in the url": {"url": "http://127.0.0.1:9/mcp\r\nX-A: b"},
    }
    servers = {
        "plain": plain,
        "star": recorder(place, "star") | {"inheritEnv": ["*"]},
        "named": recorder(place, "named") | {"inheritEnv": ["PYTHONSTARTUP"]},
        **refused,
    }
    wanted = ("plain", "star", "named")
    async with trial.gateway(servers, ready=wanted, environment=_LOADERS) as gateway:
        await _check_refused(trial, gateway, refused)
        await _odd_calls(trial, gateway, made)
        records = {name: _first_row(place, name) for name in wanted}
    trial.check(
        "arguments arrive one by one", records["plain"]["argv"][2:] == hostile, records["plain"]["argv"]
    )
    got = records["plain"]["environ"]
    trial.check("values arrive whole", all(got.get(name) == value for name, value in variables.items()), got)
    passed = {name: sorted(set(_LOADERS) & set(row["environ"])) for name, row in records.items()}
    trial.measure("loaders passed on", json.dumps(passed))
    trial.check("none by itself", passed["plain"] == [], passed)
    trial.check("none by a star", passed["star"] == [], passed)
    trial.check("one by its name", passed["named"] == ["PYTHONSTARTUP"], passed)
    trial.check("no command ran", not made.exists())


async def _check_refused(trial: Trial, gateway: AsyncGatewayProcess, refused: dict[str, Any]) -> None:
    shown = await gateway.servers()
    for name in refused:
        state = shown.get(name, {}).get("state")
        trial.check(
            f"{name}: refused with a reason", state == "rejected" and shown[name].get("reason"), state
        )
    trial.measure("refused", len(refused))
    warned = [line for line in gateway.log_lines() if "PYTHONSTARTUP" in line and '"warning"' in line]
    trial.check("the log warns of the one that is passed on", warned)


async def _odd_calls(trial: Trial, gateway: AsyncGatewayProcess, made: Path) -> None:
    """What clients say starts nothing and changes no command."""
    before = {pid: procfs.command(pid) for pid in procfs.descendants(gateway.pid)}
    caller = Client(gateway.port, modern=False)
    try:
        await caller.open()
        for name in ("--help", "plain_echo --config=x", f"plain_echo; touch {made}", "plain_echo\n-c"):
            answer = await caller.call(name)
            trial.check(f"{name!r} is unknown", not answer.ok, answer.outcome)
        command = {"command": "touch", "args": [str(made)], "env": {"LD_PRELOAD": "/nowhere/evil.so"}}
        answer = await caller.call("plain_echo", command)
        trial.check("a command in arguments is data", answer.text == "recorded", answer.outcome)
    finally:
        caller.close()
    await eventually(lambda: procfs.descendants(gateway.pid) <= set(before), 10, "no other process")
    after = {pid: procfs.command(pid) for pid in procfs.descendants(gateway.pid)}
    trial.check("the same commands run", after.items() <= before.items())


def _first_row(place: Path, name: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((place / f"{name}.jsonl").read_text().splitlines()[0])
    return row
