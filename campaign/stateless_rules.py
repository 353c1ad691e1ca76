"""What the stateless era demands of a request: who asks, and headers that repeat the body (R02-R04)."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from campaign.trial import Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, MODERN, Client, client
from testkit.clients.http1 import Heard
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, chatty, misbehaving_http

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
MISMATCH = -32020


def _mirrored(name: str, **annotations: Any) -> dict[str, Any]:
    """A tool whose arguments are repeated in the headers that `annotations` name."""
    properties = {
        argument: {"type": "string", "x-mcp-header": header} for argument, header in annotations.items()
    }
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


_BAD = {
    "empty": _mirrored("bad_empty", region=""),
    "space": _mirrored("bad_space", region="My Region"),
    "CRLF": _mirrored("bad_crlf", region="Region\r\nX-Evil: 1"),
    "NUL": _mirrored("bad_nul", region="Reg\0ion"),
    "not ASCII": _mirrored("bad_ascii", region="R\u00e9gion"),
    "colon": _mirrored("bad_colon", region="Region:"),
    "a number": _mirrored("bad_number", region=7),
    "twice": _mirrored("bad_twice", region="Region", other="region"),
    "of an object": {
        "name": "bad_object",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "object", "x-mcp-header": "Region"}},
        },
    },
    "in a list": {
        "name": "bad_place",
        "inputSchema": {
            "type": "object",
            "properties": {"all": {"type": "array", "items": {"type": "string", "x-mcp-header": "Region"}}},
        },
    },
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A gateway, a caller of the stateless era, and an upstream that tells what arrived."""

    gateway: AsyncGatewayProcess
    caller: Client
    web: MisbehavingHttpProcess

    def post(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> bytes:
        """The bytes of a request with other headers than it should have; an empty value takes one away."""
        request = self.caller.post(method, params, headers)
        for name in [name for name, value in headers.items() if not value]:
            request = request.replace(f"{name}: \r\n".encode(), b"")
        return request

    async def ask(self, request: bytes) -> tuple[Heard, int, int]:
        """What came back, its status, and the number of its error (0 for none)."""
        heard = await http1.converse(self.gateway.port, request, quiet_seconds=0.05, limit_seconds=3)
        body = heard.data.partition(b"\r\n\r\n")[2]
        try:
            code = msgspec.json.decode(body).get("error", {}).get("code", 0)
        except (msgspec.DecodeError, AttributeError):
            code = 0
        return heard, heard.statuses[0] if heard.statuses else 0, code


@asynccontextmanager
async def _setting(trial: Trial) -> AsyncIterator[Setting]:
    tools = trial.directory / "tools.json"
    good = _mirrored("where", region="Region", note="Note")
    tools.write_text(json.dumps([good, *_BAD.values(), _mirrored("after", region="Region")]))
    script = {"prompts": [{"name": "greet"}], "resources": [{"uri": "text://one", "name": "one"}]}
    async with misbehaving_http(trial.directory, "web", "--stateless", "--tools", str(tools)) as web:
        servers = {"web": web.entry(), "old": chatty(trial.directory, "old", script=script)}
        async with (
            trial.gateway(servers, spare_files=SPARE_FILES) as gateway,
            client(gateway.port, modern=True) as caller,
        ):
            yield Setting(gateway, caller, web)


@case(
    "R02",
    "headers that contradict the body: method, name, uri, version, Mcp-Param",
    "400 with -32020, nothing executed",
)
async def contradictions(trial: Trial) -> None:
    """The body is authoritative, and a request with a contradicting header is refused."""
    where = {"name": "web_where", "arguments": {"region": "eu", "note": "n"}}
    right = {"Mcp-Param-Region": "eu", "Mcp-Param-Note": "n"}
    echo: dict[str, Any] = {"name": "web_echo", "arguments": {"text": "x"}}
    cases: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
        "another method": ("tools/call", echo, {"Mcp-Method": "tools/list"}),
        "no method": ("tools/call", echo, {"Mcp-Method": ""}),
        "method in capitals": ("tools/call", echo, {"Mcp-Method": "Tools/Call"}),
        "another tool": ("tools/call", echo, {"Mcp-Name": "web_html"}),
        "no name": ("tools/call", echo, {"Mcp-Name": ""}),
        "another prompt": ("prompts/get", {"name": "old_greet"}, {"Mcp-Name": "other"}),
        "another resource": ("resources/read", {"uri": "text://one"}, {"Mcp-Name": "text://two"}),
        "another version": ("tools/call", echo | {"_meta": {_VERSION: "2027-01-01"}}, {}),
        "another region": ("tools/call", where, right | {"Mcp-Param-Region": "us"}),
        "no region": ("tools/call", where, {"Mcp-Param-Note": "n"}),
        "a region too many": ("tools/call", where | {"arguments": {"note": "n"}}, right),
        "region in capitals": ("tools/call", where, right | {"Mcp-Param-Region": "EU"}),
    }
    async with _setting(trial) as one:
        refused = 0
        for label, (method, params, headers) in cases.items():
            _, status, code = await one.ask(one.post(method, params, headers))
            refused += (status, code) == (400, MISMATCH)
            trial.check(f"{label}: 400 with -32020", (status, code) == (400, MISMATCH), (status, code))
        trial.measure("refused", f"{refused} of {len(cases)}")
        trial.check("nothing was executed", one.web.calls() == 0, one.web.calls())
        for label, params, headers in (("plain", echo, {}), ("mirrored", where, right)):
            _, status, code = await one.ask(one.post("tools/call", params, headers))
            trial.check(f"{label}: what agrees passes", (status, code) == (200, 0), (status, code))
        trial.measure("executed of those that agree", f"{one.web.calls()} of 2")


def _sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@case(
    "R03",
    "base64 in headers; CR, LF, NUL, non-ASCII; headers twice; bad x-mcp-header",
    "decoded before it is compared; refused; one bad tool leaves the others",
)
async def odd_headers(trial: Trial) -> None:
    """What does not fit into a header travels as base64, and nothing else gets through."""
    async with _setting(trial) as one:
        await _check_sentinels(trial, one)
        await _check_raw_headers(trial, one)
        listed = set(await one.caller.list_tools())
        kept = [tool for tool in _BAD.values() if f"web_{tool['name']}" in listed]
        trial.measure("tools with a bad annotation listed", f"{len(kept)} of {len(_BAD)}")
        trial.check("they are left out", not kept, kept)
        trial.check("the others are there", {"web_where", "web_after", "web_echo"} <= listed, listed)
        told = (await one.gateway.servers())["web"].get("tools_left_out", {})
        trial.check("the operator reads which", len(told) == len(_BAD), told)


async def _check_sentinels(trial: Trial, one: Setting) -> None:
    """Values of the one spelling pass and arrive in it; others are refused."""
    text = "Z\u00fcrich \u2603"
    params = {"name": "web_where", "arguments": {"region": text}}
    good = _sentinel(text)
    _, status, code = await one.ask(one.post("tools/call", params, {"Mcp-Param-Region": good}))
    trial.check("base64 is compared decoded", (status, code) == (200, 0), (status, code))
    arrived = one.web.received()[-1]["headers"].get("mcp-param-region")
    trial.check("and arrives upstream as base64", arrived == good, arrived)
    named = {"name": "web_echo", "arguments": {"text": "x"}}
    _, status, code = await one.ask(one.post("tools/call", named, {"Mcp-Name": _sentinel("web_echo")}))
    trial.check("a name in base64 passes", (status, code) == (200, 0), (status, code))
    wrong = {
        "other text": _sentinel("Zurich"),
        "not encoded": text.encode().decode("latin-1"),
        "no padding": good.replace("=?=", "?=") if good.endswith("=?=") else good[:-3] + "?=",
        "line feed": good.replace("?=", "\n?="),
        "no base64": "=?base64?***?=",
        "not UTF-8": f"=?base64?{base64.b64encode(bytes([0xFF, 0xFE])).decode()}?=",
        "another charset": good.replace("base64", "BASE64"),
        "cut": good[:-2],
    }
    before = one.web.calls()
    for label, value in wrong.items():
        _, status, code = await one.ask(one.post("tools/call", params, {"Mcp-Param-Region": value}))
        trial.check(f"{label}: refused", status == 400 and code in (MISMATCH, -32600), (status, code))
    trial.measure("wrong base64 executed", f"{one.web.calls() - before} of {len(wrong)}")
    trial.check("none of them is executed", one.web.calls() == before, one.web.calls() - before)


async def _check_raw_headers(trial: Trial, one: Setting) -> None:
    """Bytes that no header may have, and headers that are there twice."""
    where = {"name": "web_where", "arguments": {"region": "eu"}}
    right = one.post("tools/call", where, {"Mcp-Param-Region": "eu"})
    region, name = b"Mcp-Param-Region: eu\r\n", b"Mcp-Name: web_where\r\n"
    requests = {
        "CR": right.replace(region, b"Mcp-Param-Region: eu\rX: y\r\n"),
        "LF": right.replace(region, b"Mcp-Param-Region: eu\nX: y\r\n"),
        "NUL": right.replace(region, b"Mcp-Param-Region: eu\0\r\n"),
        "DEL": right.replace(region, b"Mcp-Param-Region: eu\x7f\r\n"),
        "non-ASCII": right.replace(region, b"Mcp-Param-Region: e\xfc\r\n"),
        "region twice": right.replace(region, region + region),
        "region twice, other case": right.replace(region, region + b"mcp-param-REGION: us\r\n"),
        "name twice": right.replace(name, name + b"mcp-name: web_echo\r\n"),
        "name twice, the same": right.replace(name, name + name),
        "method twice": right.replace(name, name + b"MCP-METHOD: tools/list\r\n"),
        "version twice": right.replace(name, name + b"mcp-protocol-version: 2025-11-25\r\n"),
    }
    before, passed = one.web.calls(), []
    for label, request in requests.items():
        _, status, code = await one.ask(request)
        if status != 400:
            passed.append(f"{label}: {status} {code}")
    trial.measure("raw headers refused", f"{len(requests) - len(passed)} of {len(requests)}")
    trial.check("400 for each", not passed, passed)
    trial.check("none of them is executed either", one.web.calls() == before, one.web.calls() - before)


def _table(port: int) -> dict[str, tuple[bytes, int, int]]:
    """Requests with the status and the error number (0 for none) that the specification wants."""

    def post(method: str, meta: dict[str, Any] | None, **headers: str) -> bytes:
        fields = {
            "Content-Type": "application/json", "Accept": ACCEPT, "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
        } | {name.replace("_", "-"): value for name, value in headers.items()}  # fmt: skip
        params = {} if meta is None else {"_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return http1.request(port, "POST", "/mcp", fields, msgspec.json.encode(body))

    def other(verb: str) -> bytes:
        fields = {"Accept": ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Session-Id": "x"}
        return http1.request(port, verb, "/mcp", fields)

    whole = {_VERSION: MODERN, _CAPABILITIES: {}}
    later = {_VERSION: "2031-01-01", _CAPABILITIES: {}}
    return {
        "complete": (post("tools/list", whole), 200, 0),
        "no _meta": (post("tools/list", None), 400, -32602),
        "no version": (post("tools/list", {_CAPABILITIES: {}}), 400, -32602),
        "no capabilities": (post("tools/list", {_VERSION: MODERN}), 400, -32602),
        "version no text": (post("tools/list", whole | {_VERSION: 7}), 400, -32602),
        "capabilities no object": (post("tools/list", whole | {_CAPABILITIES: []}), 400, -32602),
        "unsupported version": (
            post("tools/list", later, MCP_Protocol_Version="2031-01-01"), 400, -32022,
        ),
        "unknown method": (post("no/such", whole), 404, -32601),
        "initialize": (post("initialize", whole), 404, -32601),
        "ping": (post("ping", whole), 404, -32601),
        "logging/setLevel": (post("logging/setLevel", whole), 404, -32601),
        "resources/subscribe": (post("resources/subscribe", whole), 404, -32601),
        "a session id is ignored": (post("tools/list", whole, Mcp_Session_Id="no-such-session"), 200, 0),
        "Last-Event-ID is ignored": (post("tools/list", whole, Last_Event_ID="1"), 200, 0),
        "GET": (other("GET"), 405, 0),
        "DELETE": (other("DELETE"), 405, 0),
        "Accept without events": (post("tools/list", whole, Accept="application/json"), 406, -32600),
        "Accept without JSON": (post("tools/list", whole, Accept="text/event-stream"), 406, -32600),
        "another content type": (post("tools/list", whole, Content_Type="text/plain"), 415, -32600),
    }  # fmt: skip


@case(
    "R04",
    "requests of the stateless era that lack something, by table",
    "the status and the number that the specification names",
)
async def incomplete_requests(trial: Trial) -> None:
    """Each mistake has its own status and number, and a session id is of no account."""
    async with _setting(trial) as one:
        table = _table(one.gateway.port)
        right = 0
        for label, (request, status, code) in table.items():
            heard, seen_status, seen_code = await one.ask(request)
            right += (seen_status, seen_code) == (status, code)
            trial.check(
                f"{label}: {status} {code}", (seen_status, seen_code) == (status, code),
                f"{seen_status} {seen_code} {heard.data[-200:]!r}",
            )  # fmt: skip
            if label == "unsupported version":
                trial.check(
                    "the supported versions are named", MODERN.encode() in heard.data, heard.data[-200:]
                )
        trial.measure("right", f"{right} of {len(table)}")
