"""Labelled queries of a catalog, and the metrics of a search over them."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.tool_document import ToolDocument, ToolKey, document_of
from headgate.domain.errors import ConfigError
from headgate.domain.item import Item, ItemKind
from headgate.event_loop import TimeSlice

TOOLS_FILE: Final = "tools.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
# Queries of this split are held out.
_HELD_OUT_SPLIT: Final = "test"
# In a message: enough to find the line.
_LONGEST_SHOWN: Final = 60

Lines = Iterable[bytes | str]
T = TypeVar("T")


class InvalidLabelledSet(ConfigError):
    """An unusable set; names the file, the line and the problem."""

    def __init__(self, file: str, problem: str, *, line: int | None = None) -> None:
        where = file if line is None else f"line {line} of {file}"
        super().__init__(f"{where} {problem}", hint="docs/reference/eval-report.md has the format")


class LabelledQuery(msgspec.Struct, frozen=True):
    """A query, and the tools that answer it: one of each group."""

    text: str
    groups: tuple[frozenset[str], ...]
    split: str = ""


class LabelledSet(msgspec.Struct, frozen=True):
    """Tools as the catalog has them, their identifiers in the set, and the queries."""

    items: list[Item]
    identifiers: dict[ToolKey, str]
    questions: list[LabelledQuery]
    # Held out and not run.
    left_out: int


class _LabelledToolLine(msgspec.Struct):
    id: str
    name: str
    server: str = ""
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"null")


class _LabelledQueryLine(msgspec.Struct):
    query: str
    gold_groups: list[list[str]] = []
    gold: list[str] = []
    split: str = ""


def read_labelled_set(tools: Lines, questions: Lines) -> LabelledSet:
    """The whole set; raises InvalidLabelledSet for an unusable line, and without any query."""
    items: dict[str, Item] = {}
    identifiers: dict[ToolKey, str] = {}
    for number, tool in _decoded(tools, _LabelledToolLine, TOOLS_FILE):
        if tool.id in items:
            problem = f"has the id {_short(tool.id)} for the second time"
            raise InvalidLabelledSet(TOOLS_FILE, problem, line=number)
        server, name = _server(tool), tool.name
        # A server has unique names, a set need not; punctuation does not change the words of a name.
        while (server, name) in identifiers:
            name += "~"
        identifiers[server, name] = tool.id
        items[tool.id] = Item(ItemKind.TOOLS, server, name, tool.name, _definition(tool))
    if not items:
        raise InvalidLabelledSet(TOOLS_FILE, "has no tool")
    answerable = _answerable(questions, items)
    kept = [one for one in answerable if one.split != _HELD_OUT_SPLIT] or answerable
    return LabelledSet(list(items.values()), identifiers, kept, len(answerable) - len(kept))


def _answerable(lines: Lines, tools: Collection[str]) -> list[LabelledQuery]:
    found = []
    for number, query in _decoded(lines, _LabelledQueryLine, QUERIES_FILE):
        question = _question(query)
        for identifier in sorted(frozenset[str]().union(*question.groups)):
            if identifier not in tools:
                problem = f"wants {_short(identifier)}, which {TOOLS_FILE} does not have"
                raise InvalidLabelledSet(QUERIES_FILE, problem, line=number)
        if question.groups:
            found.append(question)
    if not found:
        raise InvalidLabelledSet(QUERIES_FILE, "has no question with an answer")
    return found


def read_labelled_tools(lines: Lines) -> list[ToolDocument]:
    """The tools, each under its server and its id in the set; raises InvalidLabelledSet."""
    found = []
    for _, tool in _decoded(lines, _LabelledToolLine, TOOLS_FILE):
        document = document_of(_server(tool), tool.name, tool.name, _definition(tool))
        found.append(msgspec.structs.replace(document, key=(_server(tool), tool.id)))
    return found


def read_labelled_queries(lines: Lines) -> list[LabelledQuery]:
    """The queries that have an answer; raises InvalidLabelledSet."""
    read = [_question(query) for _, query in _decoded(lines, _LabelledQueryLine, QUERIES_FILE)]
    return [one for one in read if one.groups]


def _decoded(lines: Lines, kind: type[T], file: str) -> Iterator[tuple[int, T]]:
    """The value of each line that is not blank, with its number."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, decoder.decode(line)
        except msgspec.ValidationError as error:
            raise InvalidLabelledSet(file, f"is not as it should be: {error}", line=number) from error
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidLabelledSet(file, "is not JSON", line=number) from error


def _server(tool: _LabelledToolLine) -> str:
    # A set without servers has a hyphen instead.
    return "" if tool.server == "-" else tool.server


def _definition(tool: _LabelledToolLine) -> bytes:
    return msgspec.json.encode({"description": tool.description, "inputSchema": tool.input_schema})


def _question(query: _LabelledQueryLine) -> LabelledQuery:
    groups = query.gold_groups or [[identifier] for identifier in query.gold]
    return LabelledQuery(query.query, tuple(frozenset(group) for group in groups if group), query.split)


def _short(identifier: str) -> str:
    return repr(identifier if len(identifier) <= _LONGEST_SHOWN else f"{identifier[:_LONGEST_SHOWN]}...")


# The number of results that are judged.
DEPTH: Final = 10
# The groups of a query, of which one tool each is expected, and the found tools, best first.
JudgedQuery = tuple[Sequence[frozenset[str]], Sequence[str]]


class RetrievalMetrics(msgspec.Struct, frozen=True):
    """Means over all queries; for a query with several groups, the share of groups that were found."""

    questions: int
    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    reciprocal_rank: float
    # The share of queries without any result.
    unanswered: float


def measure(judged: Sequence[JudgedQuery]) -> RetrievalMetrics:
    count = len(judged)

    def mean(values: Iterable[float]) -> float:
        return round(math.fsum(values) / count, 4) if count else 0.0

    # The rank of the first tool of each group, from 1; infinite if none was found.
    places = [
        [next((place for place, one in enumerate(found, 1) if one in group), math.inf) for group in groups]
        for groups, found in judged
    ]
    return RetrievalMetrics(
        questions=count,
        recall_at_1=mean(_recall(one, 1) for one in places),
        recall_at_5=mean(_recall(one, 5) for one in places),
        recall_at_10=mean(_recall(one, 10) for one in places),
        ndcg_at_10=mean(map(_ndcg, places)),
        reciprocal_rank=mean(1 / min(one) if one else 0.0 for one in places),
        unanswered=mean(float(not found) for _, found in judged),
    )


def _recall(places: Sequence[float], depth: int) -> float:
    return sum(place <= depth for place in places) / len(places) if places else 0.0


def _ndcg(places: Sequence[float]) -> float:
    # One tool may be in several groups, and its rank counts once.
    gained = sum(1 / math.log2(place + 1) for place in set(places) if place <= DEPTH)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(len(places), DEPTH) + 1))
    return gained / ideal if ideal else 0.0


class QueryRun(msgspec.Struct, frozen=True):
    """The result of one query, best first."""

    keys: tuple[ToolKey, ...]
    seconds: float
    # Whether vectors contributed.
    by_meaning: bool = False


class QueryLatency(msgspec.Struct, frozen=True):
    """The latency of queries: the 50th and the 99th percentile."""

    p50_ms: float
    p99_ms: float


async def run_queries(
    finder: Finder,
    requests: Sequence[str],
    tell: Callable[[int], None],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[QueryRun]:
    """The result of each query; `tell` gets the number of finished ones."""
    answers: list[QueryRun] = []
    time_slice = TimeSlice()
    for request in requests[:1]:
        # The first search loads data, which would be the p99 of a small set.
        await finder.find(ToolQuery(request, DEPTH))
    for request in requests:
        began = clock()
        found = await finder.find(ToolQuery(request, DEPTH))
        seconds = clock() - began
        by_meaning = any(one.meaning is not None for one in found)
        answers.append(QueryRun(tuple(one.key for one in found), seconds, by_meaning))
        tell(len(answers))
        await time_slice.yield_if_expired()
    return answers


def measure_latency(answers: Sequence[QueryRun]) -> QueryLatency:
    times = sorted(answer.seconds for answer in answers) or [0.0]
    p50, p99 = (times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99))
    return QueryLatency(round(1000 * p50, 3), round(1000 * p99, 3))
