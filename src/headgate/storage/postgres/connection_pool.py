"""Connection pools to a PostgreSQL primary and its replica, whose errors become StoreUnavailable."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from headgate.domain.errors import ConfigError, StoreUnavailable

log = logging.getLogger("headgate.storage")

T = TypeVar("T")
Connection = AsyncConnection[TupleRow]

FEWEST_CONNECTIONS: Final = 2
MOST_CONNECTIONS: Final = 10
# A connection is available at once, unless all are in use or the server is down.
_WAIT_SECONDS: Final = 3.0
# While the server is known to be down; longer than the pool pauses between two attempts.
_UNAVAILABLE_WAIT_SECONDS: Final = 1.5
# A search takes far less; a server that hangs counts as down.
_READ_SECONDS: Final = 30.0
# Enough for a large document among a million others, with concurrent writers.
_WRITE_SECONDS: Final = 300.0
# The pool itself reconnects for so long; after that each caller starts another attempt.
_RECONNECT_SECONDS: Final = 2.0
# So that a replica that is down does not delay each search.
_REPLICA_RETRY_SECONDS: Final = 5.0
# Detects a silent peer within seconds.
_NETWORK: Final = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# Waiting longer for a replica is pointless, because the primary answers too.
_REPLICA_SECONDS: Final = 1.0
# A server that does not answer by then hangs.
_CHECK_SECONDS: Final = 2.0
_HINT: Final = "write it as postgresql://user:password@host:5432/database; percent-encode special letters"
_SCHEMES: Final = ("postgresql://", "postgres://")


class PostgresDatabase:
    """One database, for which `prepare` runs once before anything else."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Connection],
        name: str,
        prepare: Callable[[Connection], Awaitable[None]],
        *,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        self._pool = pool
        self._name = name
        self._prepare = prepare
        self._wait_seconds = wait_seconds
        self._prepared = False
        self._preparing = asyncio.Lock()
        self._unavailable = False
        # Why it cannot be used; empty while it can.
        self._trouble = ""

    async def prepare(self) -> None:
        """Run `prepare` unless it has run; raises StoreUnavailable, and what `prepare` raises."""
        async with self._preparing:
            if not self._prepared:
                async with self._transaction(_WRITE_SECONDS) as connection:
                    await self._prepare(connection)
                self._prepared = True

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of `work` in a read-only snapshot; raises StoreUnavailable."""
        async with self.open_snapshot(_READ_SECONDS) as connection:
            return await work(connection)

    async def read_statement(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of `work`, a single statement that needs no transaction; raises StoreUnavailable.

        It saves the check of the connection. A statement that fails is repeated with `read`.
        """
        if self._prepared and not self._unavailable:
            try:
                with suppress(psycopg.Error, OSError, TimeoutError):
                    async with (
                        asyncio.timeout(_CHECK_SECONDS),
                        self._pool.connection(_CHECK_SECONDS) as connection,
                    ):
                        return await work(connection)
            except StoreUnavailable as away:
                self._log_outage(away.why)
                raise
        return await self.read(work)

    async def write(
        self, work: Callable[[Connection], Awaitable[T]], *, seconds: float = _WRITE_SECONDS
    ) -> T:
        """The result of `work`, once its changes are durable; raises StoreUnavailable, which undoes them."""
        if not self._prepared:
            await self.prepare()
        async with self._transaction(seconds) as connection:
            return await work(connection)

    @asynccontextmanager
    async def open_snapshot(self, seconds: float | None) -> AsyncIterator[Connection]:
        """A read-only connection with one snapshot during the block; raises StoreUnavailable."""
        if not self._prepared:
            await self.prepare()
        async with self._transaction(seconds, reading=True) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(
        self, seconds: float | None, *, reading: bool = False
    ) -> AsyncIterator[Connection]:
        with self._translate_errors():
            async with asyncio.timeout(seconds), self._connection() as connection:
                await connection.set_read_only(reading or None)
                await connection.set_isolation_level(
                    IsolationLevel.REPEATABLE_READ if reading else IsolationLevel.READ_COMMITTED
                )
                async with connection.transaction():
                    yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection that answers; the pool replaces those that do not."""
        wait_seconds = (
            min(self._wait_seconds, _UNAVAILABLE_WAIT_SECONDS) if self._unavailable else self._wait_seconds
        )
        # The pool can check too, but pauses for a second or two after each closed connection.
        for _ in range(self._pool.max_size):
            try:
                connection = await self._pool.getconn(wait_seconds)
            except PoolTimeout as timeout:
                # All connections may be in use, and the server healthy.
                error = None if self._unavailable else await _connection_error(str(self._pool.conninfo))
                raise error or timeout from None
            try:
                if not await _is_alive(connection):
                    continue
                yield connection
                return
            finally:
                await self._pool.putconn(connection)
        raise psycopg.OperationalError

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as away:
            # The server answers, but is not usable.
            self._unavailable = False
            self._log_outage(away.why)
            raise
        except (psycopg.Error, OSError) as error:
            if isinstance(error, psycopg.ProgrammingError):
                # The database may have been recreated without tables: prepare it again next time.
                self._prepared = False
            # While the server is down the pool reports only timeouts; the first reason still holds.
            known = self._unavailable and isinstance(error, PoolTimeout)
            self._log_outage(self._trouble if known else explain_error(error))
            self._unavailable = True
            # The message of the driver has statements and names, and must not reach clients.
            raise StoreUnavailable(self._trouble) from None
        if self._trouble:
            self._trouble, self._unavailable = "", False
            log.info("the %s answers again", self._name)

    def _log_outage(self, trouble: str) -> None:
        """Log the reason once per outage, not once per search."""
        if trouble != self._trouble:
            log.warning("the %s cannot be used: %s", self._name, trouble)
        self._trouble = trouble


async def _connection_error(conninfo: str) -> Exception | None:
    """The error of a new connection, because the pool reports only a timeout."""
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await (await AsyncConnection.connect(conninfo)).close()
    except (psycopg.Error, OSError) as error:
        return error
    return None


async def _is_alive(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


class ReplicatedDatabase:
    """The primary, and optionally a replica for reads."""

    def __init__(
        self,
        primary: PostgresDatabase,
        replica: PostgresDatabase | None = None,
        *,
        version: Callable[[Connection], Awaitable[int]] | None = None,
        rest_seconds: float = _REPLICA_RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.primary = primary
        self._replica = replica
        # A single statement whose result grows with every change.
        self._version = version
        self._rest_seconds = rest_seconds
        self._clock = clock
        # When the replica is tried again after a failure.
        self._rested_at = float("-inf")

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """`work` on the replica, else on the primary, perhaps on both; raises StoreUnavailable."""
        return await self._replica_first(lambda database: database.read(work))

    async def read_statement(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The same for a single statement, faster."""
        return await self._replica_first(lambda database: database.read_statement(work))

    async def _replica_first(self, look: Callable[[PostgresDatabase], Awaitable[T]]) -> T:
        replica, now = self._replica, self._clock()
        if replica is not None and now >= self._rested_at:
            failed = self._rested_at > float("-inf")
            if failed:
                # One caller tries it; the others do not wait for that.
                self._rested_at = now + self._rest_seconds
            try:
                if not failed or not await self._is_behind(replica):
                    result = await look(replica)
                    self._rested_at = float("-inf")
                    return result
            except StoreUnavailable:
                self._rested_at = self._clock() + self._rest_seconds
        return await look(self.primary)

    async def _is_behind(self, replica: PostgresDatabase) -> bool:
        """Whether a replica after a failure lacks changes that readers have seen on the primary."""
        if self._version is None:
            return False
        known = await replica.read_statement(self._version)
        try:
            return known < await self.primary.read_statement(self._version)
        except StoreUnavailable:
            # Without the primary there is no newer state to compare.
            return False


@asynccontextmanager
async def open_databases(
    url: str,
    replica_url: str | None,
    prepare: Callable[[Connection], Awaitable[None]],
    *,
    version: Callable[[Connection], Awaitable[int]] | None = None,
    connections: tuple[int, int] = (FEWEST_CONNECTIONS, MOST_CONNECTIONS),
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[ReplicatedDatabase]:
    """Both servers during the block, reachable or not; raises ConfigError for a malformed URL.

    `connections` are the fewest and the most per server. `version` is a single statement whose result grows
    with every change: a replica that failed is used again once it has caught up.
    """
    primary, replica = _conninfo(url), _conninfo(replica_url) if replica_url else None
    # The driver's log repeats what `_log_outage` reports.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    async with _pool(primary, connections) as pool:
        database = PostgresDatabase(pool, "database of the documents", prepare)
        if replica is None:
            yield ReplicatedDatabase(database, version=version)
            return
        async with _pool(replica, connections) as second:
            reader = PostgresDatabase(
                second, "replica of that database", _no_preparation, wait_seconds=_REPLICA_SECONDS
            )
            yield ReplicatedDatabase(database, reader, version=version, clock=clock)


async def _no_preparation(connection: Connection) -> None:
    """A replica has the schema of the primary."""


def _pool(conninfo: str, connections: tuple[int, int]) -> AsyncConnectionPool[Connection]:
    return AsyncConnectionPool(
        conninfo,
        connection_class=AsyncConnection[TupleRow],
        # Transactions are explicit. Prepared statements break behind a pooler such as PgBouncer.
        kwargs={"autocommit": True, "prepare_threshold": None},
        min_size=connections[0],
        max_size=connections[1],
        open=False,
        timeout=_WAIT_SECONDS,
        reconnect_timeout=_RECONNECT_SECONDS,
    )


def _conninfo(url: str) -> str:
    """The connection string, with network defaults that the URL may override; raises ConfigError."""
    if not url.startswith(_SCHEMES):
        raise ConfigError("the URL of a store begins with postgresql://", hint=_HINT)
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
        return make_conninfo(**{**_NETWORK, "application_name": "headgate", **given})
    except (psycopg.Error, ValueError, UnicodeError):
        # The message would repeat the URL with its password.
        raise ConfigError("the URL of the store cannot be read", hint=_HINT) from None


_GRANT: Final = "let an administrator grant him all on them, or give the URL of the user who made them"
# Errors of a connection attempt, from the server or the driver.
_REFUSALS: Final = tuple(
    (re.compile(pattern), explanation)
    for pattern, explanation in (
        (
            r"password authentication failed|role \".*\" (does not exist|is not permitted)|auth\w* failed",
            "the user or the password of the store's URL is wrong; correct the URL",
        ),
        (
            r"no password supplied",
            "the server wants a password, and the store's URL has none; add it to the URL",
        ),
        (
            r"pg_hba\.conf",
            "the server does not let this user in from here; let an administrator allow it in pg_hba.conf",
        ),
        (
            r"permission denied for database",
            "the user of the store's URL may not use its database; let an administrator GRANT CONNECT on it",
        ),
        (
            r"database \".*\" does not exist",
            "the database of the store's URL does not exist; run CREATE DATABASE, or correct the URL",
        ),
        (
            r"database \".*\" is not currently accepting",
            "the database of the store's URL takes no connections; let an administrator allow them",
        ),
        (
            r"too many (clients|connections)|connection slots",
            "the server has too many connections already; end some, or raise its max_connections",
        ),
        (
            r"(starting up|shutting down|recovery mode|not yet accepting)",
            "the server is starting or stopping; it is tried again",
        ),
        (
            r"resolve host|translate host name",
            "the host of the store's URL is not known here; correct the URL",
        ),
        (
            r"[Cc]onnection refused|No such file",
            "no server listens where the store's URL points to; start it, or correct the URL",
        ),
        (
            r"[Pp]ermission denied",
            "this process may not use the server's socket; let it, or give a host in the URL",
        ),
        (
            r"invalid response to SSL|expected authentication request|invalid response from",
            "what listens where the store's URL points to is no PostgreSQL server; correct the URL",
        ),
        (
            r"SSL|certificate",
            "the server and the store's URL do not agree about SSL; correct sslmode in the URL",
        ),
    )
)
_SILENT: Final = "the server does not answer in time; see whether it is well and can be reached from here"
_STATES: Final = {
    "53100": "the disk of the server is full; make room there",
    "53200": "the server has no memory left; give it more, or end what takes it",
    "53300": "the server has too many connections already; end some, or raise its max_connections",
    "42501": f"the user of the store's URL may not use the tables of the documents; {_GRANT}",
    "25006": "the database can only be read; give the URL of the primary, not of a replica",
    "3D000": "the database of the store's URL does not exist; run CREATE DATABASE, or correct the URL",
    "58P01": "the server lacks a file of the extension pgvector; install pgvector on the server again",
    "42P01": "tables of the documents are missing; they are made again with the next use",
    "57P01": "the server is stopping; it is tried again",
    "57P02": "the server has crashed; it is tried again",
    "57P03": "the server is starting or stopping; it is tried again",
    "XX001": "the data of the server is damaged; restore a backup, or ingest into a new database",
    "XX002": "an index of the server is damaged; run REINDEX DATABASE on it",
}


def explain_error(error: Exception) -> str:
    """Why a statement or a connection failed, and what to do."""
    if isinstance(error, PoolTimeout):
        return "no connection was free in time; raise knowledge.poolMax if the server is well"
    if isinstance(error, TimeoutError | psycopg.errors.ConnectionTimeout):
        return _SILENT
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state in _STATES:
        return _STATES[state]
    what = f"{type(error).__name__} {state}" if state else type(error).__name__
    if state:
        return f"the server answers {what}; its log says more"
    return _explain_refusal(error) or f"the connection to the server was lost ({what}); see whether it runs"


def _explain_refusal(error: Exception) -> str:
    """Why a connection was refused; empty for an unknown message."""
    message = str(error)
    return next((explanation for pattern, explanation in _REFUSALS if pattern.search(message)), "")
