"""A PostgreSQL server, reached through a few connections; whatever goes wrong there becomes StoreAway."""

import asyncio
import logging
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
from headgate.storage.postgres.error_messages import explain_error

log = logging.getLogger("headgate.storage")

T = TypeVar("T")
Connection = AsyncConnection[TupleRow]

FEWEST_CONNECTIONS: Final = 2
MOST_CONNECTIONS: Final = 10
# A connection is had at once, unless all are at work or the server is away; a caller is told soon.
_WAIT_SECONDS: Final = 3.0
# While it is known to be away; longer than the pool pauses between two attempts.
_UNAVAILABLE_WAIT_SECONDS: Final = 1.5
# A search is over long before that; a server that hangs is as good as one that is away.
_READ_SECONDS: Final = 30.0
# A large document among a million others, while somebody else writes too.
_WRITE_SECONDS: Final = 300.0
# So long the pool itself tries again and again; after that each caller starts another attempt.
_RECONNECT_SECONDS: Final = 2.0
# So that a replica that is away does not hold up each search.
_REPLICA_RETRY_SECONDS: Final = 5.0
# A peer that is gone without a word is noticed within seconds.
_NETWORK: Final = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# A replica only has to be quicker than the primary.
_REPLICA_SECONDS: Final = 1.0
# A server that does not say a word by then hangs.
_CHECK_SECONDS: Final = 2.0
_HINT: Final = "write it as postgresql://user:password@host:5432/database; percent-encode special letters"
_SCHEMES: Final = ("postgresql://", "postgres://")


class PostgresDatabase:
    """One server with one database, for which `prepare` is done once before anything else."""

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
        """See that everything is there that the others need; raises StoreAway, and what `prepare` raises."""
        async with self._preparing:
            if not self._prepared:
                async with self._transaction(_WRITE_SECONDS) as connection:
                    await self._prepare(connection)
                self._prepared = True

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` returns, of what had been committed when it began; raises StoreAway."""
        async with self.open_snapshot(_READ_SECONDS) as connection:
            return await work(connection)

    async def read_statement(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` returns, which makes a single statement and so needs no transaction; raises StoreAway.

        That it is answered shows that the connection is good. What fails is done again like any reading.
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
        """What `work` returns, once all that it changed is durable; raises StoreAway, and it is undone."""
        if not self._prepared:
            await self.prepare()
        async with self._transaction(seconds) as connection:
            return await work(connection)

    @asynccontextmanager
    async def open_snapshot(self, seconds: float | None) -> AsyncIterator[Connection]:
        """A connection that sees everything as it is now, however long the block lasts; raises StoreAway."""
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
        """A connection that answers; those that do not are given up, and others take their place."""
        wait_seconds = (
            min(self._wait_seconds, _UNAVAILABLE_WAIT_SECONDS) if self._unavailable else self._wait_seconds
        )
        # The pool can check too, but pauses for a second or two after each connection that was ended.
        for _ in range(self._pool.max_size):
            try:
                connection = await self._pool.getconn(wait_seconds)
            except PoolTimeout as timeout:
                # All connections may be at work, and the server be well.
                said = None if self._unavailable else await _connection_error(str(self._pool.conninfo))
                raise said or timeout from None
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
            # The server is well, but will not do.
            self._unavailable = False
            self._log_outage(away.why)
            raise
        except (psycopg.Error, OSError) as error:
            if isinstance(error, psycopg.ProgrammingError):
                # Tables may have gone, with a database that was made anew: look for them next time.
                self._prepared = False
            # While it is away the pool says no more than that; what was found out at first still holds.
            known = self._unavailable and isinstance(error, PoolTimeout)
            self._log_outage(self._trouble if known else explain_error(error))
            self._unavailable = True
            # Its words are the driver's, with statements, names and places in them: they end here.
            raise StoreUnavailable(self._trouble) from None
        if self._trouble:
            self._trouble, self._unavailable = "", False
            log.info("the %s answers again", self._name)

    def _log_outage(self, trouble: str) -> None:
        """Once for each time that it goes away, not once for each search."""
        if trouble != self._trouble:
            log.warning("the %s cannot be used: %s", self._name, trouble)
        self._trouble = trouble


async def _connection_error(conninfo: str) -> Exception | None:
    """What a server or the driver says to one who connects: the pool tells only that it took too long."""
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await (await AsyncConnection.connect(conninfo)).close()
    except (psycopg.Error, OSError) as error:
        return error
    return None


async def _is_alive(connection: Connection) -> bool:
    """Whether it is still good: a server may have ended it, or have gone without a word."""
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


class ReplicatedDatabase:
    """The one that is written to, and perhaps a replica of it that is read instead."""

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
        # A single statement, whose number grows with every change.
        self._version = version
        self._rest_seconds = rest_seconds
        self._clock = clock
        # When the replica may be asked again, after it did not answer.
        self._rested_at = float("-inf")

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` returns, of the replica when that answers, else of the primary; raises StoreAway.

        `work` may be done twice.
        """
        return await self._replica_first(lambda database: database.read(work))

    async def read_statement(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The same of a single statement, sooner."""
        return await self._replica_first(lambda database: database.read_statement(work))

    async def _replica_first(self, look: Callable[[PostgresDatabase], Awaitable[T]]) -> T:
        replica = self._available_replica()
        if replica is not None:
            try:
                if self._rested_at == float("-inf") or not await self._is_behind(replica):
                    result = await look(replica)
                    self._rested_at = float("-inf")
                    return result
            except StoreUnavailable:
                self._rested_at = self._clock() + self._rest_seconds
        return await look(self.primary)

    async def _is_behind(self, replica: PostgresDatabase) -> bool:
        """Whether one that is back lacks changes that readers have seen at the primary meanwhile."""
        if self._version is None:
            return False
        known = await replica.read_statement(self._version)
        try:
            return known < await self.primary.read_statement(self._version)
        except StoreUnavailable:
            # Without the primary nobody knows better.
            return False

    def _available_replica(self) -> PostgresDatabase | None:
        now = self._clock()
        if self._replica is None or now < self._rested_at:
            return None
        if self._rested_at > float("-inf"):
            # One tries whether it is back; the others need not wait for that.
            self._rested_at = now + self._rest_seconds
        return self._replica


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
    """Both servers, while the block lasts; no matter whether they answer. Raises ConfigError for a URL.

    `connections` are the fewest and the most that are open to each. `version` is a single statement whose
    number grows with every change: a replica that was away is read again when it has caught up.
    """
    primary, replica = _conninfo(url), _conninfo(replica_url) if replica_url else None
    # The driver logs in words of its own; we say in ours when a server goes and when it comes back.
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
    """A replica has what the primary has."""


def _pool(conninfo: str, connections: tuple[int, int]) -> AsyncConnectionPool[Connection]:
    return AsyncConnectionPool(
        conninfo,
        connection_class=AsyncConnection[TupleRow],
        # A transaction is begun only where one is meant.
        # What is prepared stays behind when a pooler such as PgBouncer gives the connection to another.
        kwargs={"autocommit": True, "prepare_threshold": None},
        min_size=connections[0],
        max_size=connections[1],
        open=False,
        timeout=_WAIT_SECONDS,
        reconnect_timeout=_RECONNECT_SECONDS,
    )


def _conninfo(url: str) -> str:
    """What the driver needs; what the URL says of the network goes before what we say. Raises ConfigError."""
    if not url.startswith(_SCHEMES):
        raise ConfigError("the URL of a store begins with postgresql://", hint=_HINT)
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
        return make_conninfo(**{**_NETWORK, "application_name": "headgate", **given})
    except (psycopg.Error, ValueError, UnicodeError):
        # Its words would repeat the URL, and the password in it.
        raise ConfigError("the URL of the store cannot be read", hint=_HINT) from None
