"""What an agent reads of a large result that it looks at in some way, and what the whole has, in tokens."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from bench.listing.gateway_process import GatewayProcess
from bench.listing.mcp_client import McpClient, Unreadable
from bench.responses.large_result_gateway import SERVER, cache_id_of, texts_of, visiting
from bench.responses.workloads import NEEDLE, deep, log, rows
from headgate.results.jobs import SearchMode
from headgate.results.tools import DEFINITIONS, EXPLORE, FILTER, READ, SEARCH, STUBS
from headgate.search.token_counter import count_tokens

ERRORS: Final = 200
LOG_BYTES: Final = 1_000_000
_LINE: Final = " ERROR "
_COLUMNS: Final = ("name", "email", "plan")


class Step(msgspec.Struct, frozen=True):
    """One call and what came of it."""

    tool: str
    asked: int
    answered: int


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A question to one result; all figures are tokens."""

    workload: str
    way: str
    whole: int
    # What the plain call would have taken to ask, without the gateway's tools.
    whole_asked: int
    steps: Sequence[Step]
    # What the text says about the same case that gave us the idea, in per cent.
    claimed: float | None = None

    @property
    def shown(self) -> int:
        """All that the agent has read, the excerpt included."""
        return sum(step.answered for step in self.steps)

    @property
    def asked(self) -> int:
        """What the agent has written more than for a plain call."""
        return sum(step.asked for step in self.steps) - self.whole_asked

    @property
    def saved(self) -> float:
        """The part of the whole that was not read."""
        return 1 - self.shown / self.whole

    def saved_net(self, more: int = 0) -> float:
        """The same less what was asked, and less what else there is to pay for."""
        return 1 - (self.shown + self.asked + more) / self.whole


def definitions() -> dict[str, int]:
    """Tokens of the five tools in a listing, which a conversation has once."""
    forms = {"whole": DEFINITIONS, "stubs": STUBS}
    return {form: sum(map(count_tokens, tools.values())) for form, tools in forms.items()}


def workloads() -> dict[str, str]:
    """What is looked at, by the name of its tool."""
    return {"log": log(LOG_BYTES, ERRORS), "rows": rows(), "deep": deep()}


def talks(gateway_process: GatewayProcess, texts: dict[str, str]) -> list[Talk]:
    """Every way. Raises Unreadable when something was not found."""
    with visiting(gateway_process) as mcp_client:
        agent = _Agent(mcp_client, texts)
        return [*_log(agent), *_rows(agent), *_deep(agent)]


class _Agent:
    def __init__(self, mcp_client: McpClient, texts: dict[str, str]) -> None:
        self._visitor = mcp_client
        self._texts = texts
        self.steps: list[Step] = []

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """One step."""
        result = self._visitor.call(tool, arguments)
        if result.get("isError"):
            raise Unreadable(f"{tool}: {texts_of(result)}")
        answered = sum(count_tokens(text.encode()) for text in texts_of(result))
        self.steps.append(Step(tool, _asked(tool, arguments), answered))
        return result

    def excerpt(self, workload: str) -> str:
        """Call the tool itself; the id of what is stored."""
        return cache_id_of(self.call(f"{SERVER}_{workload}"))

    def told(self, workload: str, way: str, claimed: float | None = None) -> Talk:
        """What it came to; the next steps are another talk."""
        steps, self.steps = self.steps, []
        return Talk(
            workload=workload,
            way=way,
            whole=count_tokens(self._texts[workload].encode()),
            whole_asked=_asked(f"{SERVER}_{workload}", {}),
            steps=steps,
            claimed=claimed,
        )


def _asked(tool: str, arguments: dict[str, Any]) -> int:
    return count_tokens(json.dumps({"name": tool, "arguments": arguments}).encode())


def _log(agent: _Agent) -> Iterator[Talk]:
    cache_id = agent.excerpt("log")
    found: set[str] = set()
    offset = 0
    while True:
        result = agent.call(
            SEARCH, cache_id=cache_id, pattern=_LINE, **({"offset": offset} if offset else {})
        )
        found |= {line for line in texts_of(result)[0].splitlines() if _LINE in line}
        facts = _facts(result)["search"]
        if "next_offset" not in facts:
            break
        offset = facts["next_offset"]
    _expect(len(found) == ERRORS, f"{len(found)} lines of {ERRORS}")
    yield agent.told("log", f"excerpt, search: all {ERRORS} lines", 0.997)
    cache_id = agent.excerpt("log")
    result = agent.call(SEARCH, cache_id=cache_id, pattern=_LINE, max_results=20)
    _expect(_facts(result)["search"]["matches"] == ERRORS, "the number of lines")
    yield agent.told("log", "excerpt, search: the first 20, and how many there are", 0.997)


def _rows(agent: _Agent) -> Iterator[Talk]:
    fields = list(_COLUMNS)
    cache_id = agent.excerpt("rows")
    _expect_rows(agent.call(FILTER, cache_id=cache_id, fields=fields))
    yield agent.told("rows", "excerpt, filter: 3 of 15 columns", 0.92)
    _expect_rows(agent.call(FILTER, tool=f"{SERVER}_rows", fields=fields))
    yield agent.told("rows", "filter at once", 0.92)
    agent.call(FILTER, tool=f"{SERVER}_rows", fields=fields, format="compact")
    yield agent.told("rows", "filter at once, compact", 0.92)


def _expect_rows(result: dict[str, Any]) -> None:
    kept = json.loads(texts_of(result)[0])
    _expect(len(kept) == 100 and all(tuple(row) == _COLUMNS for row in kept), f"{len(kept)} rows")


def _deep(agent: _Agent) -> Iterator[Talk]:
    cache_id = agent.excerpt("deep")
    agent.call(EXPLORE, cache_id=cache_id)
    agent.call(FILTER, cache_id=cache_id, fields=["cluster.regions.zones.nodes.name"])
    found = agent.call(SEARCH, cache_id=cache_id, pattern="CrashLoop", mode=SearchMode.CONTEXT)
    path = json.loads(texts_of(found)[0])[0]["path"].removesuffix(".status")
    read = agent.call(READ, cache_id=cache_id, path=path)
    _expect(NEEDLE in texts_of(read)[0], "the message of the pod that fails")
    yield agent.told("deep", "excerpt, explore, filter, search, read", 0.97)


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = next(value for key, value in result["_meta"].items() if key.endswith("/result"))
    return facts


def _expect(found: object, what: str) -> None:
    if not found:
        raise Unreadable(f"not found: {what}")
