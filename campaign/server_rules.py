"""What the specification asks of servers: inputs, access, rates, outputs, numbers of errors (R21, R23)."""

import asyncio
import pkgutil
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import headgate
from campaign import stored_results
from campaign.own_tools import ALL_LISTED, filled, own_tools
from campaign.trial import Trial, case
from headgate.domain.errors import HeadgateError
from headgate.protocol import jsonrpc_errors
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, Answer, Client, client
from testkit.misbehaving_upstreams import load, misbehaving

# A text that would clear a terminal, ring, turn the rest of the line around and begin a line of its own.
_HOSTILE = "\x1b[2J\x07\u202eevil\u2066\r\nX: y\x00"
_MARKS = ("\x1b", "\x07", "\x00", "\u202e", "\u2066")
_RATE, _BURST = 2.0, 5
_REFUSED = ("INVALID_PARAMS", "TOOL_NOT_FOUND", "NOT_FOUND", "rpc -32602", "CONFLICT", "TRANSACTION_ERROR")
# Those that JSON-RPC and MCP define: what the gateway may say beside its own numbers.
SPECIFIED = {-32700, -32600, -32601, -32602, -32603, -32002, -32020, -32021, -32022, -32042}
_RESERVED = range(-32768, -31999)


@case(
    "R21",
    "each own tool: wrong and missing arguments, hidden tools, results of others, rates, hostile text",
    "refused with a reason; nothing hidden runs; no more than the rate; no control characters in answers",
    quick_seconds=60,
)
async def own_tools_are_servers(trial: Trial) -> None:
    """The gateway asks of its own tools what the specification asks of every server."""
    record = trial.directory / "record"
    servers = {
        "load": load(rate={"perSecond": _RATE, "burst": _BURST}, shared=True),
        "rogue": misbehaving("--record", str(record), hide=["pid", "canary"]),
    }
    # Transactions open the ledger.
    async with trial.gateway(servers, settings=ALL_LISTED, spare_files=16, spare_lines=2) as gateway:
        tools = await own_tools(gateway, list(servers))
        trial.measure("own tools", len(tools))
        trial.check("own tools were found", len(tools) >= 10, sorted(tools))
        async with client(gateway.port) as caller:
            await _check_inputs(trial, caller, tools)
            await _check_outputs(trial, caller, tools)
            await _check_hidden(trial, caller, record)
            await _check_others_results(trial, gateway, caller)
            await _check_rate(trial, caller)
            await _check_searches(trial, gateway, caller)


def _wrong(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """Arguments that its schema does not allow."""
    schema = definition.get("inputSchema", {})
    properties, right = schema.get("properties", {}), filled(definition, "x")
    found: list[dict[str, Any]] = [{"no_such_member": 1}, right | {"no_such_member": {"a": 1}}]
    for name in properties:
        wrong = [[1]] if properties[name].get("type") == "object" else [{"a": [1]}]
        found += [right | {name: value} for value in wrong]
    required = schema.get("required", [])
    return found + ([{}] if required else [])


async def _check_inputs(trial: Trial, caller: Client, tools: dict[str, dict[str, Any]]) -> None:
    tried, bad = 0, []
    for name, definition in tools.items():
        for arguments in _wrong(definition):
            answer = await caller.call(name, arguments)
            tried += 1
            if answer.ok or not answer.outcome.startswith(_REFUSED):
                bad.append(f"{name} {str(arguments)[:120]}: {answer.outcome}")
    trial.measure("wrong arguments", f"{tried - len(bad)} of {tried} refused")
    trial.check("wrong arguments are refused with a reason", not bad, bad[:4])


async def _check_outputs(trial: Trial, caller: Client, tools: dict[str, dict[str, Any]]) -> None:
    shown = []
    for name, definition in tools.items():
        right = filled(definition, _HOSTILE)
        for arguments in (right, {_HOSTILE: _HOSTILE}, *({key: right[key]} for key in right)):
            answer = await caller.call(name, arguments)
            shown += [f"{name} {list(arguments)[:3]}: {text[:200]!r}" for text in _hostile_texts(answer)]
    for name in (_HOSTILE, f"rogue_{_HOSTILE}"):
        answer = await caller.call(name, {})
        shown += [f"the name of a tool: {text[:200]!r}" for text in _hostile_texts(answer)]
    trial.measure("hostile text shown", len(shown))
    trial.check("no refusal has a control character of the client's", not shown, shown[:3])


def _hostile_texts(answer: Answer) -> list[str]:
    """The sentences of a refusal that have some of it; what a client says is echoed as data elsewhere."""
    if answer.ok:
        return []
    error = answer.message.get("error") or {}
    blocks = [str(block.get("text", "")) for block in answer.result.get("content", [])]
    said = [*blocks, str(error.get("message", "")), answer.failure.hint if answer.failure else ""]
    return [text for text in said if any(mark in text for mark in _MARKS)]


async def _check_hidden(trial: Trial, caller: Client, record: Path) -> None:
    begun = await caller.call("transaction_begin", {})
    transaction = begun.result.get("structuredContent", {}).get("transaction_id", "none")
    wrapped = {"caller": "x", "sequence": 1}
    answers = {
        "direct": await caller.call("rogue_canary", wrapped),
        "call_tool": await caller.call("call_tool", {"name": "rogue_canary", "args": wrapped}),
        "expandSchema": await caller.call("expandSchema", {"toolName": "rogue_canary"}),
        "transaction_step": await caller.call(
            "transaction_step", {"transaction_id": transaction, "tool": "rogue_canary", "args": wrapped}
        ),
    }
    found = await caller.call("retrieve_tools", {"query": "canary pid", "limit": 50})
    written = record.read_text() if record.exists() else ""
    ran = [line for line in written.splitlines() if line.startswith(("call canary", "call pid"))]
    served = [how for how, answer in answers.items() if answer.ok]
    trial.measure("hidden tools", f"served {len(served)}, executed {len(ran)}")
    trial.check("a hidden tool is unknown however it is called", not served, served)
    trial.check("it is not found", b"rogue_canary" not in found.raw and b"rogue_pid" not in found.raw)
    trial.check("it is not executed", not ran, ran[:2])
    control = await caller.call("call_tool", {"name": "rogue_echo", "args": {"text": "control"}})
    trial.check("another one is", control.text == "control", control.outcome)


async def _check_others_results(trial: Trial, gateway: AsyncGatewayProcess, caller: Client) -> None:
    stored = stored_results.id_of(await caller.call("rogue_big_line", {"size": 20_000}))
    read = []
    async with client(gateway.port) as other:
        for reader, arguments in stored_results.READERS.items():
            theirs = await other.call(reader, {"cache_id": stored, **arguments})
            read += [reader] if theirs.ok else []
    own = await caller.call("proxy_read", {"cache_id": stored})
    trial.measure("results of others", f"{len(read)} read")
    trial.check("no client reads another's result", not read, read)
    trial.check("its owner does", own.ok, own.outcome)


async def _check_rate(trial: Trial, caller: Client) -> None:
    ways = (
        ("load_echo", {"text": "rate"}),
        ("call_tool", {"name": "load_echo", "args": {"text": "rate"}}),
    )
    started = time.monotonic()
    calls = [caller.call(name, arguments) for _ in range(20) for name, arguments in ways]
    answers: list[Answer] = await asyncio.gather(*calls)
    seconds = time.monotonic() - started
    served = sum(answer.ok for answer in answers)
    refused = [answer for answer in answers if answer.failure and answer.failure.code == "RATE_LIMIT"]
    untold = [
        answer.outcome for answer in refused if not answer.failure or not answer.failure.retry_after_seconds
    ]
    most = _BURST + _RATE * seconds + 1
    trial.measure("rate", f"{served} of {len(answers)} served in {seconds:.1f} s, {len(refused)} refused")
    trial.check("no more than the rate, whichever way", 0 < served <= most, f"{served}, allowed {most:.0f}")
    trial.check("the others get RATE_LIMIT and when", len(refused) == len(answers) - served and not untold)


async def _check_searches(trial: Trial, gateway: AsyncGatewayProcess, caller: Client) -> None:
    """The gateway's own work is limited too: for one agent, and not for the others by it."""
    stored = stored_results.id_of(await caller.call("rogue_big_line", {"size": 2_000_000}))
    async with client(gateway.port) as other:
        theirs = stored_results.id_of(await other.call("rogue_big_line", {"size": 20_000}))
        many = [asyncio.create_task(stored_results.search(caller, stored, "words")) for _ in range(40)]
        await asyncio.sleep(0)
        quiet = await stored_results.search(other, theirs, "words")
        answers = await asyncio.gather(*many)
    refused = sum(answer.outcome == "RESOURCE_EXHAUSTED/none" for answer in answers)
    served = sum(answer.ok for answer in answers)
    trial.measure("40 searches of one", f"{served} served, {refused} refused")
    trial.check("its searches are served or refused", served > 0 and served + refused == len(answers))
    trial.check("some are refused", refused > 0, refused)
    trial.check("another agent is served", quiet.ok, quiet.outcome)


@case(
    "R23",
    "every number of an error that the gateway has, and those of 40 provoked ones, of both eras",
    "those of the specification, or outside of -32768 to -32000; a server's error is carried as it is",
)
async def error_numbers(trial: Trial) -> None:
    """A number says whose error it is."""
    _check_declared(trial)
    async with trial.gateway(
        {"load": load(), "rogue": misbehaving(timeout=1)}, spare_lines=2, spare_files=8
    ) as gateway:
        seen: dict[int, int] = {}
        for modern in (True, False):
            async with client(gateway.port, modern=modern) as caller:
                for answer in await _provoked(gateway, caller):
                    if answer.rpc_error:
                        seen[answer.rpc_error.code] = seen.get(answer.rpc_error.code, 0) + 1
                await _check_whose(trial, caller, "new" if modern else "old")
        wrong = sorted(code for code in seen if code in _RESERVED and code not in SPECIFIED)
        trial.measure("provoked", ", ".join(f"{code} {count} x" for code, count in sorted(seen.items())))
        trial.check("errors were provoked", len(seen) >= 4 and sum(seen.values()) >= 15, seen)
        trial.check("no other number in the reserved range", not wrong, wrong)


def _subclasses(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _subclasses(one)


def _check_declared(trial: Trial) -> None:
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    own = {
        number
        for one in _subclasses(HeadgateError)
        if isinstance(number := getattr(one, "number", None), int)
    }
    spoken = {
        value for name, value in vars(jsonrpc_errors).items() if name.isupper() and isinstance(value, int)
    }
    reserved = sorted(number for number in own if number in _RESERVED)
    foreign = sorted(spoken - SPECIFIED)
    trial.measure("own numbers", f"{len(own)} from {min(own)} to {max(own)}")
    trial.measure("of the specification", len(spoken))
    trial.check("own numbers are outside of the reserved range", len(own) > 10 and not reserved, reserved)
    trial.check("the others are the specification's", len(spoken) > 5 and not foreign, foreign)


async def _provoked(gateway: AsyncGatewayProcess, caller: Client) -> list[Answer]:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("no/such", {}), ("tools/call", {}), ("tools/call", {"name": 5}), ("tools/call", {"name": "none"}),
        ("tools/call", {"name": "load_echo", "arguments": []}), ("tools/list", {"cursor": "none"}),
        ("prompts/get", {"name": "none"}), ("prompts/get", {}), ("resources/read", {"uri": "none://x"}),
        ("resources/read", {}), ("resources/subscribe", {"uri": "none://x"}),
        ("logging/setLevel", {"level": "x"}), ("completion/complete", {}),
        ("tasks/get", {"taskId": "none"}), ("rmcp/chunk", {}),
        ("tools/call", {"name": "rogue_kill_self"}), ("tools/call", {"name": "rogue_never_answer"}),
        ("tools/call", {"name": "rogue_null_id_error"}),
    )  # fmt: skip
    answers = [await caller.request(method, params) for method, params in calls]
    head = {"Content-Type": "application/json", "Accept": ACCEPT, **caller.session_headers}
    bodies = (b"{", b"[]", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"5")
    requests = [http1.request(gateway.port, "POST", "/mcp", head, body) for body in bodies]
    return answers + [await caller.exchange(request) for request in requests]


async def _check_whose(trial: Trial, caller: Client, era: str) -> None:
    """A server's error keeps its number and has no word of ours; ours says that it is ours."""
    theirs = await caller.call("load_refuse", {})
    error = theirs.message.get("error", {})
    trial.check(
        f"{era}: a server's error is carried as it is", error == {"code": -32050, "message": "no"}, error
    )
    ours = await caller.call("rogue_never_answer", {})
    trial.check(
        f"{era}: ours is a result with our mark, and no error of the server's",
        ours.failure is not None and ours.rpc_error is None,
        ours.raw[:200],
    )
    failed = await caller.call("load_fail", {"text": "no"})
    trial.check(f"{era}: a failed tool is not ours", failed.failure is None and failed.result.get("isError"))
