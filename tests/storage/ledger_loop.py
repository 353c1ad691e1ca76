"""A process that claims and finishes without end, and says what was acknowledged; or fills its disk."""

import asyncio
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from headgate.delivery.ledger import OperationOutcome, OperationState
from headgate.domain.errors import StoreFailed
from headgate.domain.mcp_request import McpResponse
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit, open_ledger
from tests.storage.ledger_stages import granted, intent

# Several at a time, so that commits hold more than one.
_AT_ONCE = 4
_LARGE = 200_000
_LONG_LEASE = 4_000_000_000.0


def answer_to(key: str) -> bytes:
    """What a call with that key is answered: now and then something too large for a row."""
    size = _LARGE if key.endswith("7") else 100
    return b'"%s"' % key.encode().ljust(size, b".")


async def main() -> None:
    """Do what the first argument says in the directory that the second one names."""
    directory = Path(sys.argv[2])
    group_commit = ledger_group_commit(directory)
    async with group_commit, open_ledger(group_commit, directory) as ledger:
        await (_go_on if sys.argv[1] == "loop" else _fill)(ledger)


async def _go_on(ledger: SqliteLedger) -> None:
    await asyncio.gather(*(_loop(ledger, f"{os.getpid()}-{number}") for number in range(_AT_ONCE)))


async def _loop(ledger: SqliteLedger, name: str) -> None:
    number = 0
    while True:
        number += 1
        key = f"{name}-{number}"
        operation = await granted(ledger, intent(key, lease_until=_LONG_LEASE))
        _say(f"claimed {key} {operation.op_id}")
        outcome = OperationOutcome(state=OperationState.DONE, answer=McpResponse(answer_to(key)))
        assert await ledger.finish(operation.op_id, operation.fence, outcome)
        _say(f"done {key} {operation.op_id}")


async def _fill(ledger: SqliteLedger) -> None:
    """No file may grow any more, which is what a full disk looks like, and then they may again."""
    done: list[str] = []
    claimed: list[str] = []
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, unlimited[1]))
    with suppress(StoreFailed):
        for number in range(1000):
            claimed.append(await _claimed(ledger, f"{number}"))
            await _finish(ledger, claimed[-1], b'"%s"' % (b"x" * 10_000))
            done.append(claimed.pop())
    try:
        while len(claimed) < 10_000:
            claimed.append(await _claimed(ledger, f"more {len(claimed)}"))
    except StoreFailed as failure:
        _say(f"claim refused: {failure}")
    try:
        await _finish(ledger, claimed[0], b'"%s"' % (b"x" * 1_000_000))
    except StoreFailed as failure:
        _say(f"answer refused: {failure}")
    assert await ledger.counts() == {
        state: {OperationState.DONE: len(done), OperationState.INTENT: len(claimed)}.get(state, 0)
        for state in OperationState
    }
    for op_id in done:
        assert await ledger.read_answer(op_id) is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await _finish(ledger, claimed[0], b'"%s"' % (b"x" * 1_000_000))
    await _claimed(ledger, "last")
    _say(f"kept {len(done)} and {len(claimed)}")


async def _claimed(ledger: SqliteLedger, key: str) -> str:
    return (await granted(ledger, intent(key, lease_until=_LONG_LEASE))).op_id


async def _finish(ledger: SqliteLedger, op_id: str, result: bytes) -> None:
    assert await ledger.finish(
        op_id, 1, OperationOutcome(state=OperationState.DONE, answer=McpResponse(result))
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
