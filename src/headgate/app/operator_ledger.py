"""The ledger of a data directory as an operator's commands open it, whether a gateway runs or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from headgate.config.settings import Settings
from headgate.delivery.ledger import LedgerDamaged, StoreFailed
from headgate.domain.errors import ConfigError
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.ledger_integrity import LedgerGuard
from headgate.storage.sqlite.transaction_store import TRANSACTION_TABLES, SqliteTransactionStore


class OperatorLedger(NamedTuple):
    """The recorded calls and the transactions of one data directory."""

    calls: SqliteLedger
    transactions: SqliteTransactionStore

    async def gateway_runs(self) -> bool:
        """Whether a gateway has this ledger open; raises StoreFailed."""
        try:
            return await asyncio.to_thread(self.calls.liveness.any_other_alive)
        except OSError as error:
            raise StoreFailed(f"the gateways that run cannot be seen ({error.strerror})") from error


async def ledger_exists(settings: Settings) -> bool:
    """Whether there is a ledger, because commands that only read do not create one; raises ConfigError.

    One that is missing is there as well: to open it says so.
    """
    path = settings.data_dir / LEDGER_NAME
    try:
        # Raises where nobody may look.
        await asyncio.to_thread(path.exists)
        return await asyncio.to_thread(LedgerGuard(path).has_ledger)
    except OSError as error:
        raise _unusable(path, error.strerror or "it cannot be read") from error


@asynccontextmanager
async def open_operator_ledger(settings: Settings) -> AsyncIterator[OperatorLedger]:
    """The ledger while the block lasts; raises ConfigError when it cannot be used."""
    path = settings.data_dir / LEDGER_NAME
    group_commit = ledger_group_commit(settings.data_dir, TRANSACTION_TABLES)
    try:
        async with group_commit, open_ledger(group_commit, settings.data_dir) as ledger:
            yield OperatorLedger(ledger, SqliteTransactionStore(group_commit, ledger.liveness))
    except LedgerDamaged as damaged:
        raise ConfigError(
            f"{path} is damaged: {damaged}",
            hint="stop the gateway and run `headgate operations recover`",
        ) from damaged
    except StoreFailed as failure:
        raise _unusable(path, str(failure)) from failure


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be used: {reason}",
        hint="mend the data directory, or name another with --data-dir",
    )
