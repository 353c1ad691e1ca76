"""Writes a ledger, and waits to be killed: `python -m bench.delivery.rows --directory DIR --rows N --open N`.

The last ones are calls that are under way when it is killed, half of them of tools that only read.
"""

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.delivery.ledger_gateway import RESULT_BYTES, SERVER, TOOL, WRITTEN
from headgate.delivery.idempotency_key import fingerprint
from headgate.delivery.ledger import Intent, OperationOutcome, OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit, open_ledger
from testkit.servers.prepared_answers import payload_result

_ARGUMENTS: Final = b'{"path":"reports/daily","limit":10}'
# As many as share a commit at the most.
_AT_ONCE: Final = 500
_LEASE_SECONDS: Final = 3600.0


def main() -> None:
    """Never returns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--open", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(_write(options.directory, options.rows, options.open))


async def _write(directory: Path, rows: int, left_open: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    async with (
        ledger_group_commit(directory) as group_commit,
        open_ledger(group_commit, directory) as ledger,
    ):
        await fill(ledger, rows, left_open)
        sys.stdout.buffer.write(WRITTEN)
        sys.stdout.buffer.flush()
        await asyncio.Event().wait()


async def fill(ledger: SqliteLedger, rows: int, left_open: int) -> None:
    """So many calls, of which the last ones are under way."""
    intents = [_intent(number, rows - left_open) for number in range(rows)]
    for start in range(0, rows, _AT_ONCE):
        part = intents[start : start + _AT_ONCE]
        await asyncio.gather(*map(ledger.claim, part))
        await _finish(ledger, part[: max(0, rows - left_open - start)])


async def _finish(ledger: SqliteLedger, intents: Sequence[Intent]) -> None:
    outcome = OperationOutcome(state=OperationState.DONE, answer=McpResponse(payload_result(RESULT_BYTES)))
    await asyncio.gather(*(ledger.finish(intent.op_id, 1, outcome) for intent in intents))


def _intent(number: int, done: int) -> Intent:
    reads = number >= done and number % 2 == 0
    return Intent(
        op_id=secrets.token_hex(16),
        tenant="local",
        principal="local",
        key=f"bench-{secrets.token_hex(6)}-{number:09d}-recovery",
        fingerprint=fingerprint(SERVER, TOOL, _ARGUMENTS),
        server=SERVER,
        tool=TOOL,
        public_name=f"{SERVER}_{TOOL}",
        kind=ToolClass.READ if reads else ToolClass.UNSAFE,
        arguments=_ARGUMENTS,
        lease_until=time.time() + _LEASE_SECONDS,
    )


if __name__ == "__main__":
    main()
