"""Random JSON-RPC: mutated messages in mutated requests (B05)."""

import asyncio
import os
import random
from collections import Counter

import msgspec

from campaign.bad_input import Poster, call_body, poster
from campaign.trial import Trial, case
from testkit.clients import http1

_SEED = 20260728
# A release runs ten million: CAMPAIGN_FUZZ_RUNS=10000000 python -m campaign B05.
_RUNS_VARIABLE = "CAMPAIGN_FUZZ_RUNS"
_LINES = 8

_SEEDS = (
    call_body(b'{"text":"x"}'),
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}',
    b'{"jsonrpc":"2.0","id":"a","method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
    b'{"jsonrpc":"2.0","id":3,"result":{}}',
    b'{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"no"}}',
    b'{"jsonrpc":"2.0","id":5,"method":"server/discover","params":{"_meta":{}}}',
    b'{"jsonrpc":"2.0","id":6,"method":"completion/complete","params":{"ref":{},"argument":{}}}',
    b'{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"x://y"}}',
    b'{"jsonrpc":"2.0","id":8,"method":"prompts/get","params":{"name":"x"}}',
    b'[{"jsonrpc":"2.0","id":9,"method":"ping"}]',
)
_VALUES: tuple[object, ...] = (
    None, True, 0, -1, 1e308, 2**63, 2**64 - 1, "", "x" * 300, "\u0000", "\U0001f600", [], {}, [[]],
)  # fmt: skip
_KEYS = (
    "jsonrpc",
    "id",
    "method",
    "params",
    "name",
    "arguments",
    "_meta",
    "result",
    "error",
    "progressToken",
)
_HEADERS = (
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
    "Mcp-Method",
    "Mcp-Name",
    "Accept",
    "Content-Type",
    "Origin",
)


def _mutate_value(value: object, dice: random.Random) -> object:
    """Change one thing somewhere inside a JSON value."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        change = dice.random()
        if change < 0.2:
            return {name: inner for name, inner in value.items() if name != key}
        if change < 0.4:
            return value | {dice.choice(_KEYS): dice.choice(_VALUES)}
        return value | {key: _mutate_value(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        return [_mutate_value(value[0], dice), *value]
    return dice.choice(_VALUES)


def _mutate_bytes(body: bytes, dice: random.Random) -> bytes:
    """Flip, cut, double or replace bytes."""
    place, change = dice.randrange(len(body) + 1), dice.random()
    if change < 0.3:
        return body[:place] + bytes([dice.randrange(256)]) + body[place + 1 :]
    if change < 0.5:
        return body[:place]
    if change < 0.7:
        return body[:place] + body[place // 2 :]
    return (
        body[:place] + dice.choice((b'"', b"{", b"]", b"\\u", b"\xff", b"9" * 400, b"[" * 90)) + body[place:]
    )


def _request(one: Poster, dice: random.Random) -> bytes:
    """One mutated message in a request whose headers may be mutated too."""
    body = dice.choice(_SEEDS)
    if dice.random() < 0.7:
        body = msgspec.json.encode(_mutate_value(msgspec.json.decode(body), dice))
    if dice.random() < 0.5:
        body = _mutate_bytes(body, dice)
    headers = one.headers
    if dice.random() < 0.3:
        values = ("", "x", "2026-07-28", "2024-11-05", "null", "tools/call", "application/json", "\xff")
        headers |= {dice.choice(_HEADERS): dice.choice(values)}
    if dice.random() < 0.1:
        del headers[dice.choice(list(headers))]
    return http1.request(
        one.gateway.port, dice.choice(("POST",) * 20 + ("PUT", "OPTIONS")), "/mcp", headers, body
    )


@case(
    "B05",
    "JSON-RPC fuzz",
    "no 5xx, no hang, no crash, no task left behind",
    quick_seconds=40,
    full_seconds=900,
)
async def fuzz(trial: Trial) -> None:
    """Mutated requests get an answer below 500, every one of them."""
    runs = int(os.environ.get(_RUNS_VARIABLE, trial.size(quick=4_000, full=200_000)))
    seen: Counter[int] = Counter()
    broken: list[str] = []
    async with poster(trial) as one:
        async with asyncio.TaskGroup() as lines:
            for line in range(_LINES):
                lines.create_task(_fuzz_line(one, random.Random(_SEED + line), runs // _LINES, seen, broken))
        trial.measure("seed", _SEED)
        trial.measure("runs", sum(seen.values()))
        trial.measure("statuses", ", ".join(f"{status}: {count}" for status, count in sorted(seen.items())))
        trial.check("every run has an answer", sum(seen.values()) + len(broken) >= runs // _LINES * _LINES)
        trial.check("no run without an answer", not broken, broken[:2])
        trial.check("no 5xx", not any(status >= 500 for status in seen), dict(seen))
        async with http1.connected(one.gateway.port) as connection:
            after = await connection.exchange(http1.request(one.gateway.port, "GET", "/ready"))
        trial.check("ready afterwards", after.status == 200, after.status)


async def _fuzz_line(
    one: Poster, dice: random.Random, runs: int, seen: Counter[int], broken: list[str]
) -> None:
    connection = await http1.connect(one.gateway.port)
    for _ in range(runs):
        request = _request(one, dice)
        try:
            async with asyncio.timeout(5):
                response = await connection.exchange(request)
            seen[response.status] += 1
            ended = response.headers.get("connection", "").lower() == "close"
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
            broken.append(f"{type(error).__name__}: {request!r:.600}")
            ended = True
        if ended:
            connection.close()
            connection = await http1.connect(one.gateway.port)
    connection.close()
