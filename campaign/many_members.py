"""Requests of as many JSON values as fit into a body, wherever the gateway may walk them (M18)."""

from typing import Any

from campaign.trial import Trial, Usage, case
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, Client
from testkit.misbehaving_upstreams import chatty, misbehaving

_BODY_BYTES = 4 * 1024 * 1024 - 1024
# What the source allows, and a little less.
_ALLOWED = 249_000
_KEYED = {"echo": {"class": "keyed", "keyArgument": "key"}}
_KEY = b"io.headgate/idempotencyKey"
_PLACES = {
    "params": b'{"name":"rogue_echo",%s:1}',
    "arguments": b'{"name":"rogue_echo","arguments":%s}',
    "argument": b'{"name":"rogue_echo","arguments":{"text":"x","x":%s}}',
    "keyed argument": b'{"name":"rogue_echo","arguments":{"x":%s},"_meta":{"' + _KEY + b'":"a%d"}}',
    "key argument": b'{"name":"pay_echo","arguments":{"x":%s},"_meta":{"' + _KEY + b'":"b%d"}}',
    "keyed arguments": b'{"name":"pay_echo","arguments":%s,"_meta":{"' + _KEY + b'":"c%d"}}',
    "_meta": b'{"name":"rogue_echo","_meta":%s}',
    "member of _meta": b'{"name":"rogue_echo","_meta":{"x":%s}}',
}


@case(
    "M18",
    "4 MiB of members: in params, arguments and _meta, nested, as arrays of empty objects, under a key",
    "each is answered or refused with 400; no stall over 100 ms",
    quick_seconds=90.0,
)
async def many_members(trial: Trial) -> None:
    """What costs little to send must cost little to refuse, and what is accepted must not stop others."""
    servers = {
        "rogue": misbehaving(),
        "pay": misbehaving(tools=_KEYED),
        "talker": chatty(trial.directory, "talker"),
    }
    # The ledger of the first keyed call stays open.
    async with trial.gateway(servers, spare_files=10) as gateway:
        usage = Usage(gateway)
        caller = Client(gateway.port, modern=False)
        await caller.open()
        answered: dict[int, int] = {}
        shapes = _shapes()
        for number, (place, shape) in enumerate(
            (place, shape) for place in _PLACES for shape in shapes if _fits(place, shape)
        ):
            params = _PLACES[place].replace(b"%s", shape).replace(b"%d", b"%d" % number)
            if place == "params":
                params = b'{"name":"rogue_echo",' + shape[1:]
            status = await _send(caller, params)
            answered[status] = answered.get(status, 0) + 1
        trial.measure("answered", ", ".join(f"{count} x {status}" for status, count in answered.items()))
        trial.measure("CPU", usage.cpu_seconds, "s")
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("each is answered or refused", set(answered) == {200, 400}, answered)
        trial.check("RSS at most +256 MB", usage.peak_growth_mib <= 256, f"{usage.peak_growth_mib:.0f} MB")
        text = b'{"name":"rogue_echo","arguments":{"text":"' + b"," * 3_000_000 + b'"}}'
        trial.check("a text of as many commas passes", await _send(caller, text) == 200)
        caller.close()


def _shapes() -> list[bytes]:
    def members(count: int, value: bytes) -> bytes:
        return b"{" + b",".join(b'"%x":%s' % (number, value) for number in range(count)) + b"}"

    def items(count: int, value: bytes) -> bytes:
        return b"[" + b",".join([value] * count) + b"]"

    return [
        members(350_000, b"1"),
        members(_ALLOWED, b"1"),
        members(140_000, b'{"a":1,"b":2,"c":3}'),
        members(19_000, b'{"a":1,"b":[2,{}]}'),
        items((_BODY_BYTES - 400) // 3, b"{}"),
        items((_BODY_BYTES - 400) // 7, b'{"":0}'),
        items(_ALLOWED // 2, b'{"":0}'),
        items(_ALLOWED, b"1"),
    ]


def _fits(place: str, shape: bytes) -> bool:
    """Whether the place takes an array too."""
    return shape[:1] == b"{" or place not in ("params", "_meta", "arguments", "keyed arguments")


async def _send(caller: Client, params: bytes) -> int:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"
    headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": ACCEPT, **caller.session_headers}
    async with http1.connected(caller.port) as connection:
        return (await connection.exchange(http1.request(caller.port, "POST", "/mcp", headers, body))).status
