"""Stored results whose ids are guessed, stolen, too old or no ids at all, and their twins (A07-A09)."""

import asyncio
import itertools
import secrets
import statistics
import time
from typing import Any

import msgspec

from campaign import stored_results
from campaign.stored_results import READERS, id_of, kept, metric, text_file
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import Answer, Client, client
from testkit.waiting import eventually

_TTL_SECONDS = 4.0
_SECRET = "for-its-owner-only"


def _unlike_unknown(answer: Answer, cache_id: str) -> str:
    """How an answer differs from the one for an id that never existed; empty if not at all."""
    told = f"Cache entry {cache_id[:100]!r} not found or expired. "
    expected = told + "Re-call the original tool to get a new cache_id."
    code = answer.failure.code if answer.failure else ""
    same = (answer.status, code, answer.text) == (200, "RESULT_NOT_FOUND", expected)
    blocks = answer.result.get("content", [])
    return "" if same and len(blocks) == 1 else f"{answer.status} {code} {answer.raw[:300]!r}"


@case(
    "A07",
    "cache ids of another session, of a session that has ended, expired, and guessed ones",
    "the same reply as for an unknown id, as quick; reads = 0",
    quick_seconds=40,
)
async def foreign_ids(trial: Trial) -> None:
    """A client that knows or guesses an id learns nothing, not even that it exists."""
    path = text_file(trial, "secret", [f"{_SECRET}\n" * 2_000])
    settings = {"cacheTTLSeconds": _TTL_SECONDS}
    async with (
        trial.gateway(stored_results.servers(), settings=settings) as gateway,
        client(gateway.port) as owner,
    ):
        async with client(gateway.port) as leaving:
            orphan = await kept(leaving, path)
        stored, began = await kept(owner, path), time.monotonic()
        own = await owner.call("proxy_read", {"cache_id": stored})
        trial.check("its owner reads it", own.text.startswith(_SECRET), own.raw[:200])
        hits = await metric(gateway, "result_hits")
        left = await metric(gateway, "results_stored")
        trial.check("what an ended session had stored is gone", left == 1, left)
        async with client(gateway.port) as thief, client(gateway.port, modern=True) as nobody:
            tried = _guesses(stored) | {"ended": orphan, "stolen": stored}
            wrong = []
            for (label, one), caller in itertools.product(tried.items(), (thief, nobody)):
                wrong += await _tried(caller, label, one)
            trial.measure("alike", f"{10 * len(tried) - len(wrong)} of {10 * len(tried)} replies")
            trial.check("the same as for an unknown id", not wrong, wrong[:3])
            await _check_ended_session(trial, gateway, path)
            await _check_timing(trial, thief, stored)
        still = await owner.call("proxy_search", {"cache_id": stored, "pattern": _SECRET})
        in_time = time.monotonic() - began < _TTL_SECONDS
        trial.check("all of this was tried while it was stored", still.ok or not in_time, still.raw[:200])
        reads = await metric(gateway, "result_hits") - hits - still.ok
        await eventually(lambda: time.monotonic() - began > _TTL_SECONDS, _TTL_SECONDS + 1, "the expiry")
        late = await _tried(owner, "expired", stored)
        trial.check("expired: the same, for its owner too", not late, late)
        trial.measure("reads", reads)
        trial.check("nothing was read", reads == 0, reads)


def _guesses(stored: str) -> dict[str, str]:
    """Ids that are nearly one that exists."""
    other = {at: ("0" if stored[at] != "0" else "1") for at in range(len(stored))}
    return {
        "random": secrets.token_hex(12),
        "cut": stored[:-1],
        "longer": stored + "0",
        "in capitals": stored.upper() + ("" if stored.upper() != stored else "A"),
        "with a blank": f" {stored}",
        "with a line end": stored + "\n",
        "with a NUL": stored + "\0",
        "twice": stored * 2,
        **{f"changed at {at}": stored[:at] + other[at] + stored[at + 1 :] for at in range(0, len(stored), 6)},
    }


async def _tried(caller: Client, label: str, cache_id: str) -> list[str]:
    """What each of the tools that read gives away of an id."""
    wrong = []
    for tool, arguments in READERS.items():
        answer = await caller.call(tool, {"cache_id": cache_id} | arguments)
        unlike = _unlike_unknown(answer, cache_id)
        if unlike or _SECRET.encode() in answer.raw:
            wrong.append(f"{label}, {tool}: {unlike}")
    return wrong


async def _check_ended_session(trial: Trial, gateway: AsyncGatewayProcess, path: Any) -> None:
    """The results of a session end with it, and its id does not reach them again."""
    async with client(gateway.port) as ending:
        stored = await kept(ending, path)
        headers = ending.session_headers
        await ending.exchange(http1.request(gateway.port, "DELETE", "/mcp", headers))
        after = await ending.call("proxy_read", {"cache_id": stored})
        trial.check("the session is gone", after.status == 404, after.status)
        ending.session = None


async def _check_timing(trial: Trial, thief: Client, stored: str) -> None:
    """Foreign and unknown ids in random order, so that other load falls on both."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(trial.size(quick=400, full=1_000)):
        exists = secrets.randbelow(2) == 0
        one = stored if exists else secrets.token_hex(12)
        answer = await thief.call("proxy_read", {"cache_id": one})
        seconds[exists].append(answer.seconds)
    theirs, unknown = (statistics.median(seconds[exists]) * 1000 for exists in (True, False))
    spread = statistics.quantiles(seconds[False], n=4)
    trial.measure("another's", theirs, "ms")
    trial.measure("unknown", unknown, "ms")
    # Two samples of the same thing differ by less than what lies between its quartiles.
    bound = (spread[2] - spread[0]) * 1000
    alike = abs(theirs - unknown) <= bound
    trial.check("as quick", alike, f"{theirs:.3f} and {unknown:.3f} ms, +-{bound:.3f}")


# Whatever an id may not be, as text.
_WEIRD = {
    "a path": "../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "encoded": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "encoded twice": "%252e%252e%252f",
    "NUL": "\0",
    "NUL in a path": "x\0/etc/passwd",
    "line ends": "a\r\nX: 1\r\n\r\n",
    "10 KB": "A" * 10_000,
    "1 MB": "A" * 1_000_000,
    "quotes": "' OR 1=1; DROP TABLE rows; --",
    "a template": "{cache_id} {0} %s ${jndi:ldap://x}",
    "wide digits": "\uff11\uff12",
    "right to left": "\u202eabc",
    "combining": "a\u0301" * 100,
    "emoji": "\U0001f600" * 200,
    "a blank": " ",
    "a glob": "*",
    "a pointer": "/content/0",
    "a spool file": "data/spool",
}
# What is no text, or no id at all, as JSON.
_WRONG = {
    "number": b"7",
    "big number": b"1" * 400,
    "null": b"null",
    "true": b"true",
    "array": b'["a"]',
    "object": b'{"a":1}',
    "empty": b'""',
    "half a pair": b'"\\ud800"',
}


@case(
    "A08",
    "ids that are paths, encoded, NUL, 10 KB, 1 MB, no text",
    "the answer for an unknown id, or one that says what an id is; nothing opened, nothing in the log",
)
async def weird_ids(trial: Trial) -> None:
    """An id is looked up and never used for anything else."""
    async with trial.gateway(stored_results.servers()) as gateway:
        wrong, largest = list[str](), 0
        for modern in (False, True):
            async with client(gateway.port, modern=modern) as caller:
                for label, one in _WEIRD.items():
                    wrong += await _tried(caller, label, one)
                    answer = await caller.call("proxy_read", {"cache_id": one})
                    largest = max(largest, len(answer.raw))
                for (label, raw), tool in itertools.product(_WRONG.items(), READERS):
                    more = msgspec.json.encode(READERS[tool])[1:]
                    arguments = b'{"cache_id":%b%b%b' % (raw, b"" if more == b"}" else b",", more)
                    answer = await caller.call(tool, arguments)
                    if not _refused(answer):
                        wrong.append(f"{label}, {tool}: {answer.outcome} {answer.raw[:200]!r}")
                    largest = max(largest, len(answer.raw))
        tried = 2 * len(READERS) * (len(_WEIRD) + len(_WRONG))
        trial.measure("right", f"{tried - len(wrong)} of {tried}")
        trial.measure("largest reply", largest, "bytes")
        trial.check("each is an unknown id or refused", not wrong, wrong[:3])
        trial.check("no id is echoed whole", largest < 3_000, largest)
        hits = await metric(gateway, "result_hits")
        trial.check("nothing was found", hits == 0, hits)


def _refused(answer: Answer) -> bool:
    """Half a pair of surrogates is refused before anybody looks for an id in it."""
    if answer.failure is None:
        return answer.status == 400
    return answer.failure.code in ("INVALID_PARAMS", "RESULT_NOT_FOUND")


@case(
    "A09",
    "sessions that call the same tool with the same arguments and get private results",
    "each has an entry of its own and sees only its own: crossings = 0",
    quick_seconds=60,
    full_seconds=600,
)
async def twins(trial: Trial) -> None:
    """A stored result answers to its id and to nothing else: no call is answered from what is stored."""
    sessions, rounds = trial.size(quick=6, full=40), trial.size(quick=2, full=10)
    settings = {"maxEntriesPerAgent": 1_000}
    async with trial.gateway(stored_results.servers(), settings=settings) as gateway:
        callers = [Client(gateway.port, modern=False) for _ in range(sessions)]
        await asyncio.gather(*(caller.open() for caller in callers))
        marks: list[tuple[str, str]] = []
        for _ in range(rounds):
            marks += [mark for told in await asyncio.gather(*map(_own_marks, callers)) for mark in told]
        crossed = sum(expected != seen for expected, seen in marks)
        entries = await metric(gateway, "results_stored")
        distinct = len({expected for expected, _ in marks})
        trial.measure("sessions", sessions)
        trial.measure("replies", len(marks))
        trial.measure("entries", f"{entries} of {distinct} executions")
        trial.measure("crossings", crossed)
        trial.check("no crossing", crossed == 0, [pair for pair in marks if pair[0] != pair[1]][:2])
        calls = 2 * sessions * rounds
        trial.check("every call has an entry of its own", entries == distinct == calls, (entries, distinct))
        for caller in callers:
            await caller.exchange(http1.request(gateway.port, "DELETE", "/mcp", caller.session_headers))
            caller.close()
        await eventually(lambda: _is_empty(gateway), 5, "the results of ended sessions to be gone")


async def _is_empty(gateway: AsyncGatewayProcess) -> bool:
    return await metric(gateway, "results_stored") == 0


async def _own_marks(caller: Client) -> list[tuple[str, str]]:
    """For every reply the mark that it should have and the marks that it has."""
    same = {"lines": 600}
    excerpt = await caller.call("rogue_private", same)
    first = _marks(excerpt)
    fresh = await caller.call("proxy_search", {"tool": "rogue_private", "arguments": same, "pattern": "line"})
    second = _marks(fresh)
    several = " " in first or " " in second or first == second
    told = [(first, "several" if several else first), (second, second)]
    for mark, cache_id in ((first, id_of(excerpt)), (second, id_of(fresh))):
        for tool, arguments in _LOOKS.items():
            answer = await caller.call(tool, {"cache_id": cache_id} | arguments)
            told.append((mark, _marks(answer)))
    return told


_LOOKS: dict[str, dict[str, Any]] = {
    "proxy_search": {"pattern": "line 5"},
    "proxy_read": {"offset": -20},
    "proxy_query": {"sql": "SELECT line FROM rows LIMIT 20"},
}


def _marks(answer: Answer) -> str:
    """All marks in an answer, of which there should be one."""
    words = answer.text.replace('"', " ").split()
    return " ".join(sorted({word for word in words if word.startswith("private-")})) or answer.outcome
