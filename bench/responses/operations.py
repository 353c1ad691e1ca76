"""Every operation on a stored result: what is asked, the same without a library, what both find."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from bench.responses import plain
from bench.responses.plain import Plain, Shown
from bench.responses.workloads import NEEDLE, SECTION
from headgate.results.content import MemoryScratch
from headgate.results.job_runner import run_job
from headgate.results.jobs import ExcerptJob, Job, JobResult
from headgate.results.large_results import TruncationSettings
from headgate.results.parsed_result import ParsedResult
from headgate.results.tools import EXPLORE, FILTER, QUERY, READ, SEARCH, parse_read_request
from headgate.workers.sql.query_processor import QueryProcessor

JSON: Final = "JSON"
LOG: Final = "log"
OPEN: Final = "open"
EXCERPT: Final = "excerpt"
_CACHE_ID: Final = "0" * 22
_RANK: Final = "quendale handshake refused merchant"
_ALIKE: Final = "qendale hanshake"
_DISPLAY: Final = TruncationSettings()


class Differs(Exception):
    """The two did not find the same, so that their times say nothing."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One of them on one kind of content."""

    name: str
    kind: str
    plain: Plain
    # The tool of the gateway and its arguments; none for what is done before any is called.
    tool: str = ""
    arguments: dict[str, Any] = {}
    # What both must show: this, something of the end of the text, or all that the plain one says.
    shows: str = ""
    shows_end: bool = False
    shows_same: bool = False

    @property
    def job(self) -> Job:
        """What the gateway does."""
        if self.name == EXCERPT:
            message, limit = _DISPLAY.message, _DISPLAY.max_size
            return ExcerptJob(
                cache_id=_CACHE_ID, limit=limit, room=_DISPLAY.excerpt_characters, message=message
            )
        arguments = Raw(msgspec.json.encode(self.arguments | {"cache_id": _CACHE_ID}))
        look = parse_read_request(self.tool, {"arguments": arguments}, _DISPLAY.reply_characters).job
        return msgspec.structs.replace(look, cache_id=_CACHE_ID)

    def ours(self, result: bytes) -> Callable[[], JobResult]:
        """The work on that result, which was opened before, as a worker has it after the first look."""
        if self.name == OPEN:
            return lambda: JobResult(result=ParsedResult(result, MemoryScratch()).document.content[:])
        job = self.job
        if self.name == EXCERPT:
            return lambda: run_job(job, ParsedResult(result, MemoryScratch()))
        opened, query = ParsedResult(result, MemoryScratch()), QueryProcessor()
        opened.document  # noqa: B018 (made when it is first asked for)
        opened.size  # noqa: B018
        return lambda: run_job(job, opened, query)

    def compare(self, ours: JobResult, theirs: Shown, text: str) -> None:
        """Raises Differs when one of them did not find what there is."""
        if ours.error is not None:
            raise Differs(f"{self.name}, {self.kind}: {ours.error}")
        witness = text[-40:-4] if self.shows_end else theirs.text if self.shows_same else self.shows
        told = ours.result.decode() if self.name == OPEN else _text_of(ours.result)
        matches = ours.metadata.get("search", {}).get("matches")
        for who, shown in (("headgate", told), ("plain", theirs.text)):
            if witness not in shown:
                raise Differs(f"{self.name}, {self.kind}: {who} has no {witness!r} in {shown[:300]!r}")
        if theirs.hits is not None and matches != theirs.hits:
            raise Differs(f"{self.name}, {self.kind}: {matches} hits, plain {theirs.hits}")


def _text_of(result: bytes) -> str:
    text: str = msgspec.json.decode(result)["content"][0]["text"]
    return text


_ITEMS: Final = (
    Operation(name=OPEN, kind=JSON, plain=plain.opened, shows=NEEDLE),
    Operation(name=EXCERPT, kind=JSON, plain=plain.excerpt_of_items, shows='"total"'),
    Operation(
        name="filter",
        kind=JSON,
        plain=plain.filtered,
        tool=FILTER,
        arguments={"fields": ["items.id", "items.customer.email"]},
        shows="100003",
    ),
    Operation(
        name="regex",
        kind=JSON,
        plain=plain.matching_items(r"Okafor 1\d\b|Quendale"),
        tool=SEARCH,
        arguments={"pattern": r"Okafor 1\d\b|Quendale"},
    ),
    Operation(
        name="bm25",
        kind=JSON,
        plain=plain.ranked(_RANK, in_json=True),
        tool=SEARCH,
        arguments={"pattern": _RANK, "mode": "bm25"},
        shows=NEEDLE,
    ),
    Operation(
        name="fuzzy",
        kind=JSON,
        plain=plain.alike(_ALIKE, in_json=True),
        tool=SEARCH,
        arguments={"pattern": _ALIKE, "mode": "fuzzy"},
        shows=NEEDLE,
    ),
    Operation(
        name="context",
        kind=JSON,
        plain=plain.around_values("Quendale"),
        tool=SEARCH,
        arguments={"pattern": "Quendale", "mode": "context"},
        shows=NEEDLE,
    ),
    Operation(
        name="structure",
        kind=JSON,
        plain=plain.fields("^(?:zip|email)$"),
        tool=SEARCH,
        arguments={"pattern": "^(?:zip|email)$", "mode": "structure"},
        shows="customer.address.zip",
    ),
    Operation(name="explore", kind=JSON, plain=plain.outlined, tool=EXPLORE, shows="email"),
    Operation(
        name="read",
        kind=JSON,
        plain=plain.last_items,
        tool=READ,
        arguments={"path": "items", "offset": -20},
        shows_end=True,
    ),
    Operation(
        name="query",
        kind=JSON,
        plain=plain.grouped,
        tool=QUERY,
        arguments={
            "path": "items",
            "sql": "SELECT status, count(*), sum(price) FROM rows GROUP BY status",
        },
        shows="blocked",
    ),
)
_LINES: Final = (
    Operation(name=OPEN, kind=LOG, plain=plain.opened, shows=NEEDLE),
    Operation(name=EXCERPT, kind=LOG, plain=plain.excerpt_of_lines, shows="# shift 0"),
    Operation(
        name="regex",
        kind=LOG,
        plain=plain.matching_lines(r" ERROR .*code 5\d\d"),
        tool=SEARCH,
        arguments={"pattern": r" ERROR .*code 5\d\d"},
    ),
    Operation(
        name="bm25",
        kind=LOG,
        plain=plain.ranked(_RANK, in_json=False),
        tool=SEARCH,
        arguments={"pattern": _RANK, "mode": "bm25"},
        shows=NEEDLE,
    ),
    Operation(
        name="fuzzy",
        kind=LOG,
        plain=plain.alike(_ALIKE, in_json=False),
        tool=SEARCH,
        arguments={"pattern": _ALIKE, "mode": "fuzzy"},
        shows=NEEDLE,
    ),
    Operation(
        name="context",
        kind=LOG,
        plain=plain.around_lines("FATAL", 3),
        tool=SEARCH,
        arguments={"pattern": "FATAL", "mode": "context", "context_type": "lines", "context_lines": 3},
        shows=NEEDLE,
    ),
    Operation(
        name="structure",
        kind=LOG,
        plain=plain.headings("shift"),
        tool=SEARCH,
        arguments={"pattern": "shift", "mode": "structure"},
        shows=SECTION,
    ),
    Operation(name="explore", kind=LOG, plain=plain.counted, tool=EXPLORE, shows="shift 0"),
    Operation(
        name="read", kind=LOG, plain=plain.last_lines, tool=READ, arguments={"offset": -20}, shows_end=True
    ),
    Operation(
        name="query",
        kind=LOG,
        plain=plain.number_of_lines(" ERROR "),
        tool=QUERY,
        arguments={"sql": "SELECT count(*) FROM rows WHERE instr(line, ' ERROR ')"},
        shows_same=True,
    ),
)
OPERATIONS: Final = (*_ITEMS, *_LINES)
