"""The same transaction at a peer that keeps transactions too: begun and closed there, undone from here."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.delivery.transactions.names import BEGIN, COMMIT
from headgate.tx.peer import is_error
from headgate.tx.requests import RequestState
from headgate.tx.results import TxResult

log = logging.getLogger("headgate.tx")

# What a gateway takes at least; the program's own limit may be shorter.
_SHORTEST_MS = 1000

Ask = Callable[[str, dict[str, Any]], Awaitable[TxResult]]


async def begin(ask: Ask, timeout_ms: float) -> str | None:
    """The peer's name for a new transaction; None when it has no tool that begins one."""
    # The program undoes its own steps: a peer that did so too would find nothing that undoes them.
    limit = max(_SHORTEST_MS, int(timeout_ms))
    answer = await ask(BEGIN, {"timeout_ms": limit, "on_failure": "keep"})
    told = getattr(answer.result, "structured_content", None)
    name = told.get("transaction_id") if isinstance(told, dict) and _is_well(answer) else None
    return name if isinstance(name, str) and name else None


async def close(ask: Ask, transaction_id: str) -> None:
    """Say that nothing more follows: the steps stay, or have been undone."""
    if not _is_well(await ask(COMMIT, {"transaction_id": transaction_id})):
        log.info("the peer did not close transaction %s", transaction_id)


def _is_well(answer: TxResult) -> bool:
    return answer.final_status is RequestState.COMPLETED and not is_error(answer.result)
