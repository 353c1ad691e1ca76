"""Bodies that a client may not send: too large, too deep, no JSON, ambiguous (B01-B04)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from campaign.trial import MEBIBYTE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, LEGACY, Answer, Client, client
from testkit.misbehaving_upstreams import misbehaving

BODY_LIMIT = 4 * MEBIBYTE


class Poster:
    """A client with a session that posts bodies of any kind, and the record of what was executed."""

    def __init__(self, gateway: AsyncGatewayProcess, caller: Client, record: Path) -> None:
        self.gateway = gateway
        self.caller = caller
        self._record = record

    @property
    def headers(self) -> dict[str, str]:
        """What belongs to every request of the session."""
        return {
            "Content-Type": "application/json",
            "Accept": ACCEPT,
            "MCP-Protocol-Version": LEGACY,
            "Mcp-Session-Id": self.caller.session or "",
        }

    async def post(self, body: bytes) -> Answer:
        """Send a body on a connection of its own."""
        request = http1.request(self.gateway.port, "POST", "/mcp", self.headers, body)
        async with asyncio.timeout(20), http1.connected(self.gateway.port) as connection:
            return Answer(await connection.exchange(request))

    async def converse(self, body: bytes) -> http1.Heard:
        """Send a body whose answer may come before its end; gives all that was heard."""
        request = http1.request(self.gateway.port, "POST", "/mcp", self.headers, body)
        return await http1.converse(self.gateway.port, request)

    def executed(self) -> int:
        """How many calls reached the upstream."""
        return self._record.read_text().count("call ") if self._record.exists() else 0


@asynccontextmanager
async def poster(trial: Trial) -> AsyncIterator[Poster]:
    """A gateway with one upstream that keeps a record, and a session to post in."""
    record = trial.directory / "record"
    async with (
        trial.gateway({"rogue": misbehaving("--record", str(record))}) as gateway,
        client(gateway.port) as caller,
    ):
        yield Poster(gateway, caller, record)


def call_body(arguments: bytes = b"{}") -> bytes:
    """A tools/call of the echo with raw arguments."""
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rogue_echo","arguments":%b}}'
        % arguments
    )


@case(
    "B01",
    "body of 4 MiB + 1, chunked, lying Content-Length",
    "413 before the body is read; exactly 4 MiB passes",
)
async def too_large(trial: Trial) -> None:
    """The limit holds for every form of declaring a length, and costs no memory."""
    async with poster(trial) as one:
        port, usage = one.gateway.port, Usage(one.gateway)
        declared = http1.request(port, "POST", "/mcp", one.headers | {"Content-Length": str(BODY_LIMIT + 1)})
        heard = await http1.converse(port, declared)
        trial.measure("declared", f"{heard.statuses} {heard.seconds:.3f} s with no body sent")
        trial.check(
            "declared: 413 before the body", heard.statuses == [413] and heard.seconds < 1, heard.statuses
        )
        head = http1.request(port, "POST", "/mcp", one.headers | {"Transfer-Encoding": "chunked"})
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        heard = await http1.converse(port, head + chunk * 1024)
        trial.measure("chunked", f"{heard.statuses} after {heard.sent / MEBIBYTE:.1f} MiB sent")
        trial.check("chunked: 413", heard.statuses == [413], heard.statuses)
        # What the kernel buffers on both sides counts as sent too.
        trial.check("chunked: not read to its end", heard.sent < 32 * MEBIBYTE, heard.sent)
        before = one.executed()
        await _lie(trial, one)
        trial.check("a lie executes nothing", one.executed() == before, one.executed() - before)
        padding = b'{"text":"%b"}' % (b"x" * (BODY_LIMIT - len(call_body(b'{"text":""}'))))
        fits = await one.post(call_body(padding))
        trial.check("exactly 4 MiB passes", fits.ok, fits.outcome)
        over = await one.converse(call_body(padding + b" "))
        trial.check("4 MiB + 1 does not", over.statuses == [413], over.statuses)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


async def _lie(trial: Trial, one: Poster) -> None:
    """A Content-Length that is smaller than the body."""
    head = http1.request(one.gateway.port, "POST", "/mcp", one.headers | {"Content-Length": "60"})
    heard = await http1.converse(one.gateway.port, head + call_body())
    trial.measure("too short", f"{heard.statuses}")
    trial.check("too short: 400", heard.statuses[:1] == [400], heard.statuses)
    trial.check("too short: no success", 200 not in heard.statuses, heard.statuses)


@case("B02", "depth 10^5, 10^6 keys, string of 10 MB", "400 or 413, no stall")
async def too_much(trial: Trial) -> None:
    """Bodies that cost a parser dearly are refused cheaply."""
    deep = b"[" * 100_000 + b"]" * 100_000
    keys = b"{" + b",".join(b'"k%d":1' % number for number in range(1_000_000)) + b"}"
    many_keys = b"{" + b",".join(b'"k%d":1' % number for number in range(300_000)) + b"}"
    # Arguments have at most 20,000 members, a request at most 250,000 values.
    fitting_keys = b"{" + b",".join(b'"k%d":1' % number for number in range(19_000)) + b"}"
    nested = b"[" * 80 + b"]" * 80
    shallow = b'{"text":"x","more":%b}' % (b"[" * 60 + b"]" * 60)
    refused = {
        "depth 10^5": deep,
        "depth 10^5 in arguments": call_body(deep),
        "depth 80 in arguments": call_body(nested),
        "10^6 keys": call_body(keys),
        "300,000 members": call_body()[:-1] + b"," + many_keys[1:],
        "300,000 params": call_body()[:-2] + b"," + many_keys[1:-1] + b"}}",
        "300,000 keys in arguments": call_body(many_keys),
        "10^6 objects": call_body(b'{"all": [%b]}' % b",".join([b"{}"] * 1_000_000)),
        "10 MB string": call_body(b'{"text":"%b"}' % (b"x" * 10_000_000)),
    }
    async with poster(trial) as one:
        for label, body in refused.items():
            heard = await one.converse(body)
            trial.measure(label, f"{heard.statuses} {heard.seconds * 1000:.0f} ms")
            trial.check(f"{label}: 400 or 413", heard.statuses in ([400], [413]), heard.statuses)
        trial.check("nothing of it was executed", one.executed() == 0, one.executed())
        answer = await one.post(call_body(shallow))
        trial.check("a depth within 64 passes", answer.ok, answer.outcome)
        for label, body in (
            ("19,000 keys", call_body(fitting_keys)),
            # Blanks hide from a quick look that nothing is there twice.
            ("the same with blanks", call_body(fitting_keys).replace(b'"id":1,', b'"id": 1, ')),
            ("100,000 objects with blanks", call_body(b'{"all": [%b]}' % b",".join([b"{}"] * 100_000))),
        ):
            many = await one.post(body)
            trial.measure(label, f"{many.outcome} {many.seconds * 1000:.0f} ms")
            trial.check(f"{label}: answered", many.status == 200, many.status)


@case("B03", "invalid UTF-8, BOM, NUL, surrogates, no JSON at all", "400")
async def no_json(trial: Trial) -> None:
    """What is no JSON text is refused, and nothing of it is executed."""
    bodies = {
        "empty": b"",
        "no JSON": b"hello",
        "cut": call_body()[:-1],
        "two values": call_body() + call_body(),
        "invalid UTF-8": call_body(b'{"text":"\xff"}'),
        "overlong": call_body(b'{"text":"\xc0\xaf"}'),
        "encoded surrogate": call_body(b'{"text":"\xed\xa0\x80"}'),
        "escaped surrogate": call_body(b'{"text":"\\ud800"}'),
        "BOM": b"\xef\xbb\xbf" + call_body(),
        "UTF-16": call_body().decode().encode("utf-16"),
        "raw NUL": call_body(b'{"text":"\x00"}'),
        "NUL after": call_body() + b"\x00",
        "raw newline": call_body(b'{"text":"\n"}'),
        "NaN": call_body(b'{"text":NaN}'),
        "trailing comma": call_body(b'{"text":"x",}'),
        "single quotes": call_body(b"{'text':'x'}"),
    }
    async with poster(trial) as one:
        statuses = {label: (await one.post(body)).status for label, body in bodies.items()}
        trial.measure("400", f"{sum(status == 400 for status in statuses.values())} of {len(statuses)}")
        for label, status in statuses.items():
            trial.check(f"{label}: 400", status == 400, status)
        trial.check("nothing of it was executed", one.executed() == 0, one.executed())


@case("B04", "duplicate keys among jsonrpc, id, method, name", "400 with -32600, nothing executed")
async def duplicate_keys(trial: Trial) -> None:
    """A body that says two things is believed in neither."""
    whole, large = call_body(), b'{"text":"%b"}' % (b"x" * 200_000)
    bodies = {
        "method": whole.replace(b'"params"', b'"method":"tools/list","params"'),
        "method first": whole.replace(b'"id":1', b'"method":"tools/list","id":1'),
        "id": whole.replace(b'"id":1', b'"id":2,"id":1'),
        "jsonrpc": whole.replace(b'"id":1', b'"jsonrpc":"1.0","id":1'),
        "name": whole.replace(b'"arguments"', b'"name":"rogue_pid","arguments"'),
        "escaped method": whole.replace(b'"params"', b'"\\u006dethod":"tools/list","params"'),
        "escaped name": whole.replace(b'"arguments"', b'"n\\u0061me":"rogue_pid","arguments"'),
        "same value": whole.replace(b'"id":1', b'"id":1,"id":1'),
        "params": whole[:-1] + b',"params":{"name":"rogue_pid"}}',
        "name in a large body": call_body(large).replace(b'"arguments"', b'"name":"rogue_pid","arguments"'),
        "escaped name in a large body": call_body(large).replace(
            b'"arguments"', b'"n\\u0061me":"rogue_pid","arguments"'
        ),
        "method in a large body": call_body(large).replace(b'"params"', b'"method":"tools/list","params"'),
    }
    async with poster(trial) as one:
        answers = {label: await one.post(body) for label, body in bodies.items()}
        refused = sum(_is_refused(answer) for answer in answers.values())
        trial.measure("refused", f"{refused} of {len(answers)}")
        for label, answer in answers.items():
            trial.check(f"{label}: 400 with -32600", _is_refused(answer), f"{answer.status} {answer.outcome}")
        trial.check("nothing of it was executed", one.executed() == 0, one.executed())
        inner = await one.post(call_body(b'{"text":"a","text":"b"}'))
        trial.check("duplicates in arguments are the upstream's affair", inner.ok, inner.outcome)


def _is_refused(answer: Answer) -> bool:
    return answer.status == 400 and answer.rpc_error is not None and answer.rpc_error.code == -32600
