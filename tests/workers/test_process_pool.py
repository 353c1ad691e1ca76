"""Confined processes: they start on demand, end when they are idle, and do not outlive their parent."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from headgate.results.jobs import JobResult, ReadJob, ReadParams
from headgate.workers.process_pool import ProcessPool, ProcessStartError
from testkit.procfs import descendants, still_alive
from testkit.waiting import eventually, wait_until
from tests.results.sample_results import result, text, texts_of

WAIT_SECONDS = 20.0
PROGRAM = "headgate.workers.result_jobs"
RESULT = result(text("line 0\nline 1\nline 2"))
READ = msgspec.msgpack.encode(
    ReadJob(tool="proxy_read", cache_id="0a", room=100, reading=ReadParams(limit=2, room=100))
)


class Children:
    """The processes that were started since, beside those of other tests, such as a database."""

    def __init__(self) -> None:
        self._before = descendants(os.getpid())

    def now(self) -> set[int]:
        return descendants(os.getpid()) - self._before


@asynccontextmanager
async def pool_in(directory: Path, idle_seconds: float) -> AsyncIterator[tuple[ProcessPool, Children]]:
    children = Children()
    pool = ProcessPool(PROGRAM, str(directory), max_processes=2, idle_seconds=idle_seconds)
    try:
        yield pool, children
    finally:
        async with asyncio.timeout(WAIT_SECONDS):
            await pool.close()
        assert children.now() == set()


async def read(pool: ProcessPool) -> str:
    reply = await pool.run(READ, RESULT, seconds=WAIT_SECONDS)
    return texts_of(msgspec.msgpack.decode(reply, type=JobResult).result)[0]


async def test_a_process_is_reused_and_ends_when_it_is_idle(tmp_path: Path) -> None:
    async with pool_in(tmp_path, idle_seconds=0.5) as (pool, children):
        assert children.now() == set()
        assert [await read(pool), await read(pool)] == ["line 0\nline 1"] * 2
        assert len(children.now()) == 1
        await eventually(lambda: not children.now(), WAIT_SECONDS, "the idle process ends")
        assert await read(pool) == "line 0\nline 1"
        assert pool.killed == 0


async def test_an_idle_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    async with pool_in(tmp_path, idle_seconds=60) as (pool, children):
        await read(pool)
        (pid,) = children.now()
        os.kill(pid, 9)
        await eventually(lambda: not still_alive({pid}), WAIT_SECONDS, "it is dead")
        pool.discard_dead()
        assert await read(pool) == "line 0\nline 1"


async def test_a_process_that_cannot_be_started_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    async with pool_in(tmp_path, idle_seconds=60) as (pool, _):
        with pytest.raises(ProcessStartError, match="No such file or directory"):
            await read(pool)


def test_a_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio
import sys
from headgate.workers.process_pool import ProcessPool

async def main():
    pool = ProcessPool({PROGRAM!r}, {str(tmp_path)!r}, max_processes=1)
    await pool.run({READ!r}, {RESULT!r}, seconds={WAIT_SECONDS})
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        children = descendants(parent.pid)
        assert len(children) == 1
        parent.kill()
        parent.wait(WAIT_SECONDS)
    wait_until(lambda: not still_alive(children), WAIT_SECONDS, "the child ends")
