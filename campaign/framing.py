"""HTTP heads that are too large, malformed, or say two things about where a request ends (B06, B07)."""

import asyncio

from campaign.bad_input import Poster, call_body, poster
from campaign.trial import Trial, Usage, case
from testkit.clients import http1
from testkit.clients.http1 import Heard


def _with(one: Poster, *lines: bytes) -> bytes:
    """A right request with raw header lines added."""
    request = http1.request(one.gateway.port, "POST", "/mcp", one.headers, call_body(b'{"text":"x"}'))
    return request.replace(b"\r\n", b"\r\n" + b"".join(line + b"\r\n" for line in lines), 1)


@case(
    "B06", "header bombs: 70 KB, 1,000 headers, CRLF, NUL, underscores", "431 or 400; names are not confused"
)
async def header_bombs(trial: Trial) -> None:
    """Heads beyond 32 KiB or 100 fields get 431, malformed ones 400."""
    async with poster(trial) as one:
        usage = Usage(one.gateway)
        requests: dict[str, tuple[bytes, list[int]]] = {
            "70 KB": (_with(one, b"X-Large: " + b"a" * 70_000), [431]),
            "10 MB": (_with(one, b"X-Large: " + b"a" * 10_000_000), [431]),
            "33 KiB in all": (_with(one, *(b"X-%d: " % n + b"a" * 1_000 for n in range(33))), [431]),
            "1,000 headers": (_with(one, *(b"X-%d: 1" % n for n in range(1_000))), [431]),
            "30 KiB": (_with(one, b"X-Large: " + b"a" * 30_000), [200]),
            "70 KB target": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [431, 414, 400]),
            "CR in a value": (_with(one, b"X-A: b\rc"), [400]),
            "LF in a value": (_with(one, b"X-A: b\nX-B: c"), [400]),
            "NUL in a value": (_with(one, b"X-A: b\x00c"), [400]),
            "NUL in a name": (_with(one, b"X\x00A: b"), [400]),
            "space in a name": (_with(one, b"X A: b"), [400]),
            "no colon": (_with(one, b"XA"), [400]),
            "empty name": (_with(one, b": b"), [400]),
        }
        for label, (request, allowed) in requests.items():
            heard = await http1.converse(one.gateway.port, request)
            trial.measure(label, ",".join(map(str, heard.statuses)) or "closed")
            right = heard.statuses[:1] and heard.statuses[0] in allowed and len(heard.statuses) == 1
            trial.check(f"{label}: {allowed}", right, heard.statuses)
        await _underscores(trial, one)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +32 MB", usage.peak_growth_mib <= 32, f"{usage.peak_growth_mib:.0f} MB")


async def _underscores(trial: Trial, one: Poster) -> None:
    """`Mcp_Session_Id` is not `Mcp-Session-Id`, neither instead of it nor beside it."""
    beside = await http1.converse(
        one.gateway.port, _with(one, b"Mcp_Session_Id: another", b"Content_Length: 1")
    )
    trial.check("beside: ignored or refused", beside.statuses in ([200], [400]), beside.statuses)
    instead = _with(one).replace(b"Mcp-Session-Id", b"Mcp_Session_Id")
    heard = await http1.converse(one.gateway.port, instead)
    trial.measure("underscores", f"beside {beside.statuses}, instead {heard.statuses}")
    trial.check("instead: 400", heard.statuses == [400], heard.statuses)


def _smuggling_set(one: Poster) -> dict[str, bytes]:
    """Requests about whose end two readers could disagree, each followed by a second request."""
    second = b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % one.gateway.port
    head = http1.request(one.gateway.port, "POST", "/mcp", one.headers)[:-2]
    body = call_body(b'{"text":"x"}')
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    length = b"Content-Length: %d\r\n" % len(body)

    def request(fields: bytes, data: bytes) -> bytes:
        return head + fields + b"\r\n" + data

    return {
        "CL.TE": request(b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nG" + second),
        "TE.CL": request(b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunked + second),
        "TE.TE": request(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked + second),
        "TE unknown": request(b"Transfer-Encoding: xchunked\r\n" + length, body + second),
        "TE not last": request(b"Transfer-Encoding: chunked, identity\r\n", chunked + second),
        "TE vertical tab": request(b"Transfer-Encoding: \x0bchunked\r\n" + length, body + second),
        "TE space before colon": request(b"Transfer-Encoding : chunked\r\n" + length, chunked + second),
        "TE folded": request(b"Transfer-Encoding:\r\n chunked\r\n" + length, chunked + second),
        "TE after LF": request(b"X: y\nTransfer-Encoding: chunked\r\n" + length, chunked + second),
        "CL twice, different": request(length + b"Content-Length: 3\r\n", body + second),
        "CL list": request(b"Content-Length: %d, 3\r\n" % len(body), body + second),
        "CL plus": request(b"Content-Length: +%d\r\n" % len(body), body + second),
        "CL minus": request(b"Content-Length: -1\r\n", body + second),
        "CL hexadecimal": request(b"Content-Length: 0x10\r\n", body + second),
        "CL with space": request(b"Content-Length: 1 0\r\n", body + second),
        "CL empty": request(b"Content-Length: \r\n", body + second),
        "CL overflow": request(b"Content-Length: 18446744073709551617\r\n", b"1" + second),
        "CL space before colon": request(b"Content-Length : %d\r\n" % len(body), body + second),
        "CL folded": request(b"Content-Length:\r\n %d\r\n" % len(body), body + second),
        "folded field": request(length + b"X-A: b\r\n folded\r\n", body + second),
        "space before first field": head.replace(b"\r\n", b"\r\n ", 1) + length + b"\r\n" + body + second,
        "chunk 0x": request(b"Transfer-Encoding: chunked\r\n", b"0x" + chunked + second),
        "chunk minus": request(b"Transfer-Encoding: chunked\r\n", b"-1\r\n" + chunked + second),
        "chunk overflow": request(b"Transfer-Encoding: chunked\r\n", b"f" * 17 + b"\r\n" + body + second),
        "chunk LF": request(b"Transfer-Encoding: chunked\r\n", chunked.replace(b"\r\n", b"\n") + second),
        "chunk without end": request(
            b"Transfer-Encoding: chunked\r\n", b"5\r\n" + body + b"\r\n0\r\n\r\n" + second
        ),
        "TE in HTTP/1.0": request(b"Transfer-Encoding: chunked\r\n", chunked + second).replace(
            b"HTTP/1.1", b"HTTP/1.0", 1
        ),
        "LF only": (head + length + b"\r\n").replace(b"\r\n", b"\n") + body + second,
        "two hosts": request(b"Host: evil.example\r\n" + length, body),
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + second,
        "version 9.9": request(length, body + second).replace(b"HTTP/1.1", b"HTTP/9.9", 1),
        "two versions": request(length, body + second).replace(b"HTTP/1.1", b"HTTP/1.1 HTTP/1.1", 1),
        "no version": b"GET /ready\r\n\r\n" + second,
    }


@case(
    "B07", "request smuggling set on raw sockets", "refused or closed; second responses = 0", quick_seconds=60
)
async def smuggling(trial: Trial) -> None:
    """No request is read as two."""
    async with poster(trial) as one:
        labels = _smuggling_set(one)
        heard = await asyncio.gather(*(http1.converse(one.gateway.port, data) for data in labels.values()))
        outcomes = dict(zip(labels, heard, strict=True))
        second = [label for label, what in outcomes.items() if len(what.statuses) > 1]
        trial.measure("tried", len(labels))
        trial.measure("second responses", len(second))
        trial.measure("refused with 4xx", sum(_is_refused(what) for what in heard))
        trial.measure("closed", sum(what.closed for what in heard))
        for label, what in outcomes.items():
            seen = f"{what.statuses}, {'closed' if what.closed else 'open'}"
            trial.check(f"{label}: no second response", len(what.statuses) <= 1, seen)
            trial.check(f"{label}: refused or closed", what.closed or _is_refused(what), seen)
        two = http1.request(one.gateway.port, "GET", "/health") * 2
        honest = await http1.converse(one.gateway.port, two)
        trial.check("honest pipelining works", honest.statuses == [200, 200], honest.statuses)
        inside = http1.request(one.gateway.port, "GET", "/health", body=b"GET /ready HTTP/1.1\r\n\r\n")
        swallowed = await http1.converse(one.gateway.port, inside)
        trial.check("a body is no request", len(swallowed.statuses) == 1, swallowed.statuses)


def _is_refused(what: Heard) -> bool:
    return what.statuses[:1] != [] and 400 <= what.statuses[0] < 500
