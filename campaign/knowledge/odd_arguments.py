"""All six tools are called with odd arguments (K06)."""

import asyncio
import base64
import json
import random
from collections import Counter
from typing import Any

from campaign.knowledge.knowledge_gateway import CODES, Opened, opened
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import Trial, case
from testkit.clients.async_http import Answer
from testkit.embeddings_endpoint import word_embedder

_CALLERS = 4
# Of a call at p99, on a machine that does much else.
_LATE_SECONDS = 1.0
# What is no JSON, such as half a character, and what is no call of a tool.
_PROTOCOL = (-32700, -32602)
_TOOLS: dict[str, dict[str, Any]] = {
    "semantic_search": {
        "query": "invoices", "page_size": 5, "cursor": None, "fields": ["chunk_id"], "response_mode": "full",
        "filters": {"source_category": "travel"}, "min_score": 0.1, "strategy": "hybrid", "boosts": True,
        "explain": True, "response_format": "desktop", "top_k": 3,
    },
    "find_vendor_info": {
        "vendor_name": "Acme Corporation", "response_mode": "preview", "include_relationships": True,
        "page_size": 5, "cursor": None, "fields": ["entities"],
    },
    "list_sources": {"filters": {"doc_type": "text"}, "page_size": 5, "fields": ["source_file"]},
    "get_chunk": {"chunk_id": 1, "response_mode": "preview", "fields": ["chunk_id"]},
    "get_chunks": {"chunk_ids": [1, 2], "response_mode": "full", "fields": ["chunk_id"]},
    "neighbours": {
        "entity": "Acme Corporation", "hops": 2, "entity_types": ["ORG"], "relationship_types": "ACQUIRED",
        "min_confidence": 0.1, "page_size": 5, "cursor": None, "fields": ["entities"],
    },
}  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 50, 51, 10**18, -(10**30), 0.5, 1.0000001, -0.0, 1e308, "", " ",
    "0", "10", "1e3", "NaN", "\0", "\x1b[2J\x07", "\u202egnp.exe", "\ud83d\ude00" * 3, "é" * 499, "x" * 500,
    "x" * 501, "x" * 50_000, "' OR 1=1 --", '"unbalanced', '"a phrase" "and another"', '""""', "*", "%", "_",
    "\\", "(((", "NEAR(a b)", "a AND OR NOT", "^a*", "../../../etc/passwd", "file:///etc/passwd",
    "{{7*7}}", "${HOME}",
    "semantic_search", "ids_only", "metadata", "preview", "full", "auto", "FULL", "desktop", "vector", "bm25",
    "2026-02-30", "9999-12-31", "0001-01-01", "2026-1-1", [], {}, [[]], [None], [1, "2", 3.0],
    ["chunk_id"] * 99, ["chunk_id", "chunk_text", "nothing"], {"a": {"b": {"c": []}}},
    {"source_file": "*" * 900}, [1] * 51,
    {"source_file": ["*a*b*c*d*e*"] * 40}, {"date_from": "2026-13-01"}, {"date_to": 5}, {"doc_type": [1]},
    {"source_category": "x" * 1001}, list(range(1, 51)), "and the of", "a" + "b c " * 120,
    "\u0130\u0307" * 90, "\ud800", "half \udfff",
)  # fmt: skip


@case(
    "K06",
    "odd arguments to all six tools, cursors with every bit flipped, both stores",
    "an answer or an error of the closed set; no traceback, path, SQL or key; p99 bounded",
    quick_seconds=200,
    full_seconds=1800,
)
async def odd_arguments(trial: Trial) -> None:
    """Whatever is asked is answered in a word that a model can act on."""
    outcomes = []
    with word_embedder() as environment:
        for database in (False, True):
            async with opened(trial, database=database, environment=environment) as here:
                shelf = Shelf(trial.directory / f"shelf{int(database)}", 20)
                ended = await here.place.run("ingest", str(shelf.top))
                trial.check("the ingestion ends well", ended.code == 0, ended.err)
                count = trial.size(quick=1_000, full=20_000)
                said = _Said([str(trial.directory), here.place.url, environment["MCPPROXY_OPENAI_API_KEY"]])
                dice = random.Random(6)
                await _all(here, [_question(dice) for _ in range(count)], said)
                await _all(here, await _bent(here, dice, trial.size(quick=300, full=3_000)), said)
                _judge(trial, here, said)
                outcomes.append(said.codes)
    trial.check("both stores say the same", outcomes[0] == outcomes[1], outcomes)


def _judge(trial: Trial, here: Opened, said: "_Said") -> None:
    kind = here.place.kind
    late = sorted(said.seconds)[int(len(said.seconds) * 0.99)]
    trial.measure(kind, f"{len(said.seconds)} calls, p99 {late * 1000:.0f} ms")
    trial.measure(f"{kind} said", ", ".join(f"{times} x {code}" for code, times in said.codes.most_common()))
    trial.check(f"{kind}: the closed set", not said.odd, said.odd[:3])
    trial.check(f"{kind}: nothing of the inside", not said.leaks, said.leaks[:3])
    trial.check(f"{kind}: p99 within {_LATE_SECONDS:g} s", late < _LATE_SECONDS, late)
    trial.check(f"{kind}: some are answered", said.codes["ok"] > 0, said.codes)


class _Said:
    """What was answered, and what is wrong with it."""

    def __init__(self, secrets: list[str]) -> None:
        self.codes: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.odd: list[str] = []
        self.leaks: list[str] = []
        self._secrets = [secret for secret in secrets if secret]
        self._secrets += [
            "Traceback",
            "sqlite3.",
            "psycopg",
            "SELECT ",
            "INSERT ",
            "knowledge_chunks",
            "/site-packages/",
        ]

    def note(self, arguments: dict[str, Any], answer: Answer) -> None:
        """Judge one answer."""
        self.seconds.append(answer.seconds)
        rpc = answer.rpc_error.code if answer.rpc_error else 0
        code = answer.failure.code if answer.failure else "ok" if answer.ok else f"rpc {rpc}"
        self.codes[code] += 1
        allowed = answer.ok or code in CODES - {"SEARCH_FAILED", "DB_CONNECTION"} or rpc in _PROTOCOL
        if not allowed:
            self.odd.append(f"{str(arguments)[:300]}: {code} {answer.raw[:300]!r}")
        text = answer.raw.decode(errors="replace")
        self.leaks += [f"{secret} after {str(arguments)[:200]}" for secret in self._secrets if secret in text]


async def _all(here: Opened, questions: list[tuple[str, dict[str, Any]]], said: _Said) -> None:
    waiting = iter(questions)

    async def ask() -> None:
        for tool, arguments in waiting:
            raw = json.dumps(arguments).encode()
            said.note(arguments, await here.caller.call(f"knowledge_{tool}", raw))

    await asyncio.gather(*(ask() for _ in range(_CALLERS)))


def _question(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """A tool with most arguments as they should be, and some that should not."""
    tool = dice.choice(tuple(_TOOLS))
    usual = _TOOLS[tool]
    needed = next(iter(usual))
    arguments = {name: value for name, value in usual.items() if name == needed or dice.random() < 0.25}
    for _ in range(dice.choice((0, 1, 1, 1, 2))):
        name = dice.choice([*usual, needed, needed, needed])
        arguments[name if dice.random() < 0.97 else dice.choice(("nothing", "", "\0"))] = dice.choice(_VALUES)
    if dice.random() < 0.05:
        arguments.pop(needed)
    return tool, arguments


async def _bent(here: Opened, dice: random.Random, most: int) -> list[tuple[str, dict[str, Any]]]:
    """Questions with cursors of which one bit is another, or that were cut or given for something else."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("semantic_search", {"query": "invoices", "page_size": 3}),
        ("list_sources", {"page_size": 3}),
        (
            "find_vendor_info",
            {"vendor_name": "Acme Corporation", "response_mode": "ids_only", "page_size": 1},
        ),
        ("neighbours", {"entity": "Acme Corporation", "page_size": 1, "min_confidence": 0}),
    ]
    found: list[tuple[str, dict[str, Any]]] = []
    for tool, arguments in asked:
        told = await here.told(tool, **arguments)
        cursor = told["pagination"]["cursor"]
        if cursor is None:
            raise RuntimeError(f"{tool} has one page: {told}")
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        bent = [cursor[:length] for length in range(len(cursor))] + [cursor + "A", cursor * 2, "A" * 100_000]
        for bit in range(len(raw) * 8):
            other = bytearray(raw)
            other[bit // 8] ^= 1 << bit % 8
            bent.append(base64.urlsafe_b64encode(bytes(other)).rstrip(b"=").decode())
        found += [(tool, arguments | {"cursor": one}) for one in bent]
        found += [(another, more | {"cursor": cursor}) for another, more in asked]
    dice.shuffle(found)
    return found[:most]
