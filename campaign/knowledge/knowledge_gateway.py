"""A gateway that has the documents' server, and what its tools say."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from campaign.knowledge.knowledge_process import WORDS_ALONE, Place
from campaign.trial import STALL_SECONDS, WHOLE, Trial
from testkit import postgres
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client

# What every answer has to be one of, if it is not what was asked for.
CODES = {
    "AUTH_REQUIRED", "AUTH_INVALID", "RATE_LIMIT", "VENDOR_NOT_FOUND", "VENDOR_AMBIGUOUS", "QUERY_TOO_LONG",
    "INVALID_PARAMS", "DB_CONNECTION", "SEARCH_FAILED", "SERVICE_UNAVAILABLE", "RESULT_NOT_FOUND",
}  # fmt: skip
AWAY = "Database unavailable, retry in 5s"
# What an operator reads instead, with the reason and what to do.
AWAY_FOR_OPERATORS = "headgate: the store of the documents cannot be used: "
# A pool has up to ten connections, and a file some for those who read and write.
_SPARE_FILES = 24


@dataclass(frozen=True, slots=True)
class Opened:
    """The gateway, the place of its documents, and a client."""

    gateway: AsyncGatewayProcess
    place: Place
    caller: Client

    async def ask(self, tool: str, **arguments: Any) -> Answer:
        """Call one of the documents' tools."""
        return await self.caller.call(f"knowledge_{tool}", arguments)

    async def told(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What it answers; raises RuntimeError when it refuses."""
        answer = await self.ask(tool, **arguments)
        if not answer.ok:
            raise RuntimeError(f"{tool} {arguments}: {answer.outcome} {answer.text[:300]}")
        return dict(answer.result["structuredContent"])


@contextlib.asynccontextmanager
async def opened(
    trial: Trial,
    *,
    database: bool = False,
    environment: dict[str, str] | None = None,
    others: dict[str, Any] | None = None,
    stall_seconds: float | None = STALL_SECONDS,
) -> AsyncIterator[Opened]:
    """A gateway over an empty store: a file, or a database."""
    own = dict(environment or WORDS_ALONE)
    url = postgres.server().new_database() if database else ""
    servers = {"knowledge": {"builtin": "knowledge"}, **(others or {})}
    knowledge = {"embedder": own["HEADGATE_EMBEDDER"], "tokenBudget": 0} | ({"store": url} if url else {})
    settings: dict[str, Any] = WHOLE | {"knowledge": knowledge}
    if "MCPPROXY_OPENAI_BASE_URL" in own:
        settings |= {
            "openaiBaseUrl": own["MCPPROXY_OPENAI_BASE_URL"],
            "openaiApiKey": own["MCPPROXY_OPENAI_API_KEY"],
        }
    async with (
        trial.gateway(
            servers, settings=settings, stall_seconds=stall_seconds, spare_files=_SPARE_FILES
        ) as gateway,
        client(gateway.port, modern=True) as caller,
    ):
        yield Opened(gateway, Place(gateway.log.parent / "data", url, own), caller)


def told_once(err: str) -> bool:
    """Whether a command said in one sentence that the store is away, why, and what to do."""
    lines = [line for line in err.splitlines() if line.startswith("headgate: ")]
    return len(lines) == 1 and lines[0].startswith(AWAY_FOR_OPERATORS) and "Traceback" not in err
