"""Web pages and hosts that try to reach a gateway on this machine (A11, A13, R01)."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from campaign.bad_input import Poster, call_body, poster
from campaign.streams import listen_request
from campaign.trial import Trial, case
from testkit.clients import http1
from testkit.clients.async_http import Client
from testkit.clients.http1 import Heard

_ROUTES = (
    ("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("OPTIONS", "/mcp"), ("GET", "/sse"),
    ("GET", "/mcp/sse"), ("POST", "/messages?session_id=x"), ("GET", "/ready"), ("GET", "/metrics"),
)  # fmt: skip


async def _ask(one: Poster, verb: str, path: str, headers: dict[str, str]) -> Heard:
    body = call_body(b'{"text":"x"}') if verb == "POST" else None
    request = http1.request(one.gateway.port, verb, path, one.headers | headers, body)
    return await http1.converse(one.gateway.port, request, quiet_seconds=0.05, limit_seconds=2)


@case(
    "A11",
    "Origin and Host of others: evil, null, another local port",
    "403 and 421 on every route, nothing executed",
)
async def foreign_origins(trial: Trial) -> None:
    """Every route refuses what a page from elsewhere would send."""
    async with poster(trial) as one:
        port = one.gateway.port
        origins = (
            "http://evil.example", "https://evil.example", "null", f"http://127.0.0.1:{port + 1}",
            f"http://localhost:{port + 1}", f"http://127.0.0.1.evil.example:{port}", f"http://evil.example:{port}",
            f"http://localhost:{port}@evil.example", f"http://127.0.0.1:{port}.evil.example", "file://",
        )  # fmt: skip
        hosts = (
            "evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}",
            f"localhost.evil.example:{port}", "169.254.169.254", f"0.0.0.0.evil.example:{port}",
        )  # fmt: skip
        wrong = []
        for verb, path in _ROUTES:
            for origin in origins:
                heard = await _ask(one, verb, path, {"Origin": origin})
                if heard.statuses != [403]:
                    wrong.append(f"{verb} {path} Origin {origin}: {heard.statuses}")
            for host in hosts:
                heard = await _ask(one, verb, path, {"Host": host})
                if heard.statuses != [421]:
                    wrong.append(f"{verb} {path} Host {host}: {heard.statuses}")
        trial.measure("refused", f"{len(_ROUTES) * (len(origins) + len(hosts)) - len(wrong)} of "
                      f"{len(_ROUTES) * (len(origins) + len(hosts))}")  # fmt: skip
        trial.check("403 for each Origin, 421 for each Host", not wrong, wrong[:6])
        trial.check("nothing was executed", one.executed() == 0, one.executed())
        for headers in ({}, {"Origin": f"http://127.0.0.1:{port}"}, {"Host": f"localhost:{port}"}):
            heard = await _ask(one, "POST", "/mcp", headers)
            trial.check(f"our own may: {headers}", heard.statuses == [200], heard.statuses)


def _bad_hosts(port: int) -> dict[str, bytes]:
    """Raw values of Host that a careless reader would take apart wrongly."""
    good = b"127.0.0.1:%d" % port
    return {
        "path": b"x/../admin?",
        "good with path": good + b"/../admin",
        "good with query": good + b"?x",
        "good with fragment": good + b"#x",
        "user": b"user@" + good,
        "good as user": good + b"@evil.example",
        "list": good + b", evil.example",
        "two words": good + b" evil.example",
        "empty": b"",
        "port only": b":%d" % port,
        "port too large": b"127.0.0.1:99999",
        "port no number": b"127.0.0.1:abc",
        "space before port": b"127.0.0.1 :%d" % port,
        "open bracket": b"[::1",
        "bracket and more": b"[::1]evil:%d" % port,
        "encoded slash": b"127.0.0.1%%2f:%d" % port,
        "backslash": b"127.0.0.1\\@evil:%d" % port,
        "short address": b"127.1:%d" % port,
        "decimal address": b"2130706433:%d" % port,
        "hexadecimal address": b"0x7f000001:%d" % port,
        "octal address": b"0177.0.0.1:%d" % port,
        "any address": b"0.0.0.0:%d" % port,
        "mapped address": b"[::ffff:127.0.0.1]:%d" % port,
        "long": b"a" * 10_000,
        "not ASCII": "localh\u00f6st".encode() + b":%d" % port,
        "fullwidth": "\uff11\uff12\uff17.0.0.1".encode() + b":%d" % port,
        "NUL": good + b"\x00",
        "CR": good + b"\revil",
        "LF": good + b"\nX-A: b",
        "folded": good + b"\r\n evil.example",
        "scheme": b"http://" + good,
    }


@case("A13", "malformed Host: paths, users, CRLF, other spellings of an address", "400 or 421; bypasses = 0")
async def malformed_hosts(trial: Trial) -> None:
    """No spelling of Host gets past the check or changes which path is served."""
    async with poster(trial) as one:
        port = one.gateway.port
        right = http1.request(port, "POST", "/mcp", one.headers, call_body(b'{"text":"x"}'))
        host = b"Host: 127.0.0.1:%d\r\n" % port
        requests = {
            label: right.replace(host, b"Host: " + value + b"\r\n")
            for label, value in _bad_hosts(port).items()
        }
        requests |= {
            "none": right.replace(host, b""),
            "twice": right.replace(host, host + b"Host: evil.example\r\n"),
            "twice, evil first": right.replace(host, b"Host: evil.example\r\n" + host),
            "forwarded": right.replace(
                host, b"Host: evil.example\r\nX-Forwarded-Host: 127.0.0.1:%d\r\n" % port
            ),
            "absolute target": right.replace(b"POST /mcp", b"POST http://evil.example/mcp", 1),
        }
        passed = []
        for label, request in requests.items():
            heard = await http1.converse(port, request, quiet_seconds=0.05, limit_seconds=2)
            refused = (not heard.statuses and heard.closed) or heard.statuses in ([400], [421], [431])
            trial.check(f"{label}: 400 or 421", refused, heard.statuses)
            if not refused:
                passed.append(label)
        trial.measure("tried", len(requests))
        trial.measure("bypasses", len(passed))
        trial.check("nothing was executed", one.executed() == 0, one.executed())


def _own_requests(one: Poster) -> dict[str, bytes]:
    """Requests of both eras that the gateway serves, each with a session or a version that is right."""
    modern = Client(one.gateway.port, modern=True)
    call = {"name": "rogue_echo", "arguments": {"text": "x"}}
    return {
        "stateless call": modern.post("tools/call", call),
        "stateless discovery": modern.post("server/discover", {}),
        "stateless subscription": modern.post(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        ),
        "call in a session": one.caller.post("tools/call", call),
        "handshake": one.caller.post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
        "stream of a session": listen_request(one.caller),
    }


@case("R01", "Origin and Host of others on live sessions and subscriptions; where the gateway listens",
      "403 and 421 for each, before anything is read; loopback only")  # fmt: skip
async def rebinding(trial: Trial) -> None:
    """A page from elsewhere gets nowhere even if it knows a session, and no other address is listened on."""
    async with poster(trial) as one:
        port = one.gateway.port
        host = f"Host: 127.0.0.1:{port}\r\n".encode()
        origins = ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}")
        hosts = (f"evil.example:{port}", "169.254.169.254", f"localhost:{port + 1}")
        strange = {f"Origin: {one}\r\n".encode(): 403 for one in origins}
        strange |= {f"Host: {one}\r\n".encode(): 421 for one in hosts}
        wrong, tried = [], 0
        for label, request in _own_requests(one).items():
            for line, status in strange.items():
                changed = request.replace(host, host + line if line.startswith(b"Origin") else line)
                # Nothing of the body is needed to refuse it.
                head = changed.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
                heard = await http1.converse(port, head, quiet_seconds=0.02, limit_seconds=2)
                tried += 1
                if heard.statuses != [status]:
                    wrong.append(f"{label} with {line!r}: {heard.statuses}")
        trial.measure("refused", f"{tried - len(wrong)} of {tried}")
        trial.check("403 for each Origin, 421 for each Host", not wrong, wrong[:6])
        trial.check("nothing was executed", one.executed() == 0, one.executed())
        served = await http1.converse(port, _own_requests(one)["stateless call"], quiet_seconds=0.05)
        trial.check("our own may", served.statuses == [200], served.statuses)
        listening = _listening(one.gateway.pid)
        trial.measure("listens on", ", ".join(sorted(listening)))
        trial.check("loopback only", listening == {"127.0.0.1"}, listening)
    code, said = await _refuses_to_listen(trial.directory)
    trial.measure("--host 0.0.0.0", f"exit code {code}")
    trial.check("it does not start on every address", code not in (0, None), said[-300:])


def _listening(pid: int) -> set[str]:
    """The addresses on which a process listens, as the kernel has them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = (raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
                kind = socket.AF_INET if family == "tcp" else socket.AF_INET6
                found.add(socket.inet_ntop(kind, b"".join(words)))
    return found


async def _refuses_to_listen(directory: Path) -> tuple[int | None, str]:
    """The exit code and output of a gateway with the setting to listen on every address."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate", "serve", "--transport", "http", "--host", "0.0.0.0"),
        *("--port", "0", "--data-dir", str(directory / "open")), cwd=directory,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(10):
            said, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return child.returncode, said.decode(errors="replace")
