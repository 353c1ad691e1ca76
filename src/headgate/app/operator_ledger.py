"""Opens the ledger of a data directory for an operator, and recovers it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

from headgate.config.settings import Settings
from headgate.control.ledger_recovery import LedgerRecoveryReport, LedgerRecoveryResult, recover_ledger
from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.errors import ConfigError, StoreFailed
from headgate.storage.files.ledger_files import ProcessLiveness
from headgate.storage.sqlite import ledger_recovery
from headgate.storage.sqlite.database_file import store_failure
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS, LedgerGuard, check_ledger
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore

_BUSY_SECONDS = 5.0


class OpenLedgerFiles(NamedTuple):
    """The recorded calls and the transactions of one data directory, as an `OperatorLedger`."""

    operations: SqliteLedger
    transactions: SqliteTransactionStore

    async def gateway_runs(self) -> bool:
        """Whether a gateway has this ledger open; raises StoreFailed."""
        try:
            return await asyncio.to_thread(self.operations.liveness.any_other_alive)
        except OSError as error:
            raise StoreFailed(f"the gateways that run cannot be seen ({error.strerror})") from error


class LedgerFilesSource:
    """The ledger of a data directory, as a `LedgerSource`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    @property
    def path(self) -> Path:
        return self._data_dir / LEDGER_NAME

    async def exists(self) -> bool:
        try:
            # Raises without permission to read.
            await asyncio.to_thread(self.path.exists)
            return await asyncio.to_thread(LedgerGuard(self.path).existed)
        except OSError as error:
            raise self._unusable(error.strerror or "it cannot be read") from error

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenLedgerFiles]:
        group_commit = ledger_group_commit(self._data_dir)
        try:
            async with group_commit, open_ledger(group_commit, self._data_dir) as ledger:
                yield OpenLedgerFiles(ledger, SqliteTransactionStore(group_commit, ledger.liveness))
        except LedgerDamaged as damaged:
            raise ConfigError(
                f"{self.path} is damaged: {damaged}",
                hint="stop the gateway and run `headgate operations recover`",
            ) from damaged
        except StoreFailed as failure:
            raise self._unusable(str(failure)) from failure

    def _unusable(self, reason: str) -> ConfigError:
        problem = f"{self.path} cannot be used: {reason}"
        return ConfigError(problem, hint="mend the data directory, or name another with --data-dir")


async def recover_ledger_files(settings: Settings, *, accept_loss: bool) -> LedgerRecoveryResult:
    """As `recover_ledger`; raises ConfigError when a gateway runs or the directory cannot be used."""
    ledger = _RecoverableLedgerFiles(settings.data_dir)
    try:
        return await asyncio.to_thread(
            recover_ledger,
            ledger,
            window_seconds=settings.ledger_window_seconds,
            doubt_window_seconds=settings.doubt_window_seconds,
            accept_loss=accept_loss,
        )
    except (OSError, sqlite3.Error, StoreFailed) as error:
        raise ConfigError(
            f"{ledger.path} cannot be recovered: {store_failure(error)}",
            hint="make the data directory readable and writable, with room for a second ledger",
        ) from error


class _RecoverableLedgerFiles:
    """The files as a `RecoverableLedger`; raises OSError, sqlite3.Error and StoreFailed."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / LEDGER_NAME
        self._owners = data_dir / "owners"
        self._guard = LedgerGuard(self.path)

    def exists(self) -> bool:
        return self._guard.existed()

    def is_in_use(self) -> bool:
        return ProcessLiveness(self._owners).any_other_alive()

    def find_damage(self) -> str:
        report = self._guard.report.read()
        if report is not None:
            return report.reason
        try:
            with closing(self._guard.open(LEDGER_MIGRATIONS, _BUSY_SECONDS)):
                check_ledger(self.path, lambda: False)
        except (sqlite3.Error, LedgerDamaged, UnicodeDecodeError) as error:
            failed = store_failure(error)
            if not isinstance(failed, LedgerDamaged):
                raise failed from error
            # A gateway that starts before the operator has decided must not use it either.
            self._guard.note_failure(failed)
            return str(failed)
        finally:
            self._guard.close()
        return ""

    def inspect(self, *, since: float, doubts_since: float) -> LedgerRecoveryReport:
        return ledger_recovery.inspect(self.path, since=since, doubts_since=doubts_since)

    def replace(self, *, since: float, doubts_since: float) -> tuple[LedgerRecoveryReport, Path | None]:
        return ledger_recovery.recover(self.path, since=since, doubts_since=doubts_since)
