"""Work on large results in processes: bounded in time and memory, stopped when no caller waits, none left."""

import asyncio
import gc
import json
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headgate.domain.errors import ResourceExhausted, WorkerLimitExceeded
from headgate.domain.payload import Payload
from headgate.results.jobs import ExcerptJob, Job, JobResult, QueryParams, ReadJob, ReadParams, SearchParams
from headgate.workers.worker_pool import WorkerPool, open_worker_pool
from testkit.procfs import descendants, still_alive
from testkit.waiting import eventually
from tests.results.sample_results import result, spooled, text, texts_of
from tests.upstream.spool_limits import open_files

WAIT_SECONDS = 20.0
# Longer than any test waits: what ends sooner was stopped.
JOB_SECONDS = 60.0
LINES = result(text("\n".join(f"line {number}" for number in range(20_000))))
READ = ReadJob(tool="proxy_read", cache_id="0a", room=100, reading=ReadParams(limit=2, room=100))
SEARCH = ReadJob(
    tool="proxy_search", cache_id="0a", room=100, search=SearchParams(pattern="line 19999", room=100)
)
ENDLESS = ReadJob(
    tool="proxy_query",
    cache_id="0a",
    room=100,
    query=QueryParams(
        sql="WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    ),
)


@asynccontextmanager
async def workers_in(directory: Path, seconds: float = JOB_SECONDS) -> AsyncIterator[WorkerPool]:
    """Workers that end with the block, and have left nothing."""
    workers = WorkerPool(directory, seconds=seconds)
    try:
        yield workers
    finally:
        async with asyncio.timeout(WAIT_SECONDS):
            await workers.close()
        assert processes() == set()
        # A socket or a process that was not closed is reported in this test and not in the next.
        gc.collect()


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[WorkerPool]:
    async with workers_in(tmp_path) as workers:
        yield workers


def processes() -> set[int]:
    """The workers of this process."""
    return {pid for pid in descendants(os.getpid()) if b"headgate.workers.result_jobs" in command(pid)}


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        # It has just ended.
        return b""


async def done(
    workers: WorkerPool, job: Job = READ, content: Payload = LINES, agent: str = "alice", entry: str = "0a"
) -> JobResult:
    async with asyncio.timeout(WAIT_SECONDS):
        return await workers.run_in_worker(job, agent, entry, content)


def first(made: JobResult) -> str:
    assert made.error is None
    return texts_of(made.result)[0]


async def at_work(pid: int) -> None:
    """Wait until the process has computed for a while; one that waits for a job does not."""
    before = computed(pid)
    await eventually(lambda: computed(pid) >= before + 5, WAIT_SECONDS, "it works")


def computed(pid: int) -> int:
    """Its time on a processor, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def only_worker(workers: WorkerPool) -> int:
    """The number of a worker that waits for a job."""
    await done(workers)
    (pid,) = processes()
    return pid


async def test_jobs_of_every_kind_are_done_by_one_process_one_after_the_other(tmp_path: Path) -> None:
    assert processes() == set()
    excerpt = ExcerptJob(cache_id="0a", limit=10, room=20, message="{cache_id}")
    question = ReadJob(
        tool="proxy_query",
        cache_id="0a",
        room=100,
        query=QueryParams(sql="SELECT count(*) FROM rows", room=100),
    )
    async with open_worker_pool(tmp_path) as workers:
        assert first(await done(workers)) == "line 0\nline 1"
        assert first(await done(workers, excerpt)) == "line 0\nline 1\nline 2"
        assert first(await done(workers, SEARCH)) == "line 19999"
        assert json.loads(first(await done(workers, question)))["rows"] == [[20_000]]
        assert len(processes()) == 1
        assert (workers.jobs, workers.stopped) == (4, 0)
    assert processes() == set()


async def test_a_result_on_disk_is_read_where_it_is_and_stays_the_callers(
    workers: WorkerPool, tmp_path: Path
) -> None:
    # So large that the worker keeps its text on disk as well.
    count = 800_000
    value = await spooled(tmp_path, result(text("".join(f"line {number}\n" for number in range(count)))))
    last = ReadJob(tool="proxy_read", cache_id="0a", room=100, reading=ReadParams(offset=-1, room=100))
    assert first(await done(workers, last, value)) == f"line {count - 1}"
    assert first(await done(workers, SEARCH, value)).startswith("line 19999\nline 199990\n")
    assert len(open_files(tmp_path)) == 1
    value.close()
    # What was opened before is not taken for what is opened now.
    for number in (*range(7), *range(7)):
        data = result(text(f"result {number}\nx"))
        assert first(await done(workers, content=data, entry=f"id {number}")) == f"result {number}\nx"


async def test_what_is_wrong_with_a_result_or_a_job_is_said_and_the_worker_goes_on(
    workers: WorkerPool,
) -> None:
    pid = await only_worker(workers)
    # One from the terminal is not meant for it.
    os.kill(pid, signal.SIGINT)
    lost = ReadJob(tool="proxy_read", cache_id="0a", room=100, reading=ReadParams(path="a.b", room=100))
    for made in (
        await done(workers, content=b"no result", entry="other"),
        await done(workers, lost),
    ):
        assert made.error
        assert not made.result
    assert await only_worker(workers) == pid


# What takes too long, or too much.


async def test_a_job_without_an_end_is_stopped_with_its_process(tmp_path: Path) -> None:
    async with workers_in(tmp_path, seconds=0.5) as workers:
        with pytest.raises(WorkerLimitExceeded) as stopped:
            await done(workers, ENDLESS)
        assert "0.5 s" in str(stopped.value)
        assert workers.stopped == 1
        await eventually(lambda: not processes(), WAIT_SECONDS, "it is gone")


async def test_whoever_stops_waiting_stops_the_work(workers: WorkerPool) -> None:
    pid = await only_worker(workers)
    waiting = asyncio.ensure_future(done(workers, ENDLESS))
    await at_work(pid)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: not still_alive({pid}), WAIT_SECONDS, "it is gone")
    assert workers.stopped == 1


async def test_whoever_stops_waiting_while_a_process_starts_leaves_none(workers: WorkerPool) -> None:
    for _ in range(3):
        waiting = asyncio.ensure_future(done(workers))
        # It is handed to a thread in its first turn.
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    # The workers are closed now, and whatever was started is ended: the fixture looks.


async def test_a_worker_that_is_lost_takes_one_job_with_it(workers: WorkerPool) -> None:
    pid = await only_worker(workers)
    waiting = asyncio.ensure_future(done(workers, ENDLESS))
    await at_work(pid)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLimitExceeded):
        await waiting
    assert first(await done(workers)) == "line 0\nline 1"
    assert workers.stopped == 1


async def test_a_job_that_needs_too_much_memory_is_told_so_and_the_next_one_is_done(
    workers: WorkerPool,
) -> None:
    pid = await only_worker(workers)
    held = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    most = held + 64 * 1024 * 1024
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (most, hard))
    # Opened, every number takes as much as fifty of them do in the text.
    numbers = result(text("[" + "1," * 1_500_000 + "1]"))
    made = await done(workers, content=numbers, entry="numbers")
    assert "more memory than one job may take" in (made.error or "")
    assert await only_worker(workers) == pid


# Who waits for whom.


async def test_two_agents_do_not_wait_for_each_other_and_one_waits_for_itself(workers: WorkerPool) -> None:
    pid = await only_worker(workers)
    long = asyncio.ensure_future(done(workers, ENDLESS, agent="alice"))
    await at_work(pid)
    then = asyncio.ensure_future(done(workers, agent="alice"))
    assert first(await done(workers, agent="bob")) == "line 0\nline 1"
    assert first(await done(workers, agent="carol")) == "line 0\nline 1"
    assert not long.done()
    assert not then.done()
    assert len(processes()) == 2
    long.cancel()
    assert first(await then) == "line 0\nline 1"


async def test_whoever_stops_waiting_for_his_turn_holds_up_nobody(workers: WorkerPool) -> None:
    pid = await only_worker(workers)
    long = asyncio.ensure_future(done(workers, ENDLESS))
    await at_work(pid)
    waiting = [asyncio.ensure_future(done(workers)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted):
        # So many of one agent may wait.
        await done(workers)
    for one in waiting[:3]:
        one.cancel()
    long.cancel()
    assert first(await waiting[3]) == "line 0\nline 1"
    # Only the one at work had to be stopped.
    assert workers.stopped == 1


async def test_a_result_that_has_just_come_waits_for_nobodys_question(workers: WorkerPool) -> None:
    pid = await only_worker(workers)
    long = asyncio.ensure_future(done(workers, ENDLESS))
    await at_work(pid)
    job = ExcerptJob(cache_id="0a", limit=1, room=5, message="{cache_id}")
    cut = await asyncio.wait_for(done(workers, job), 20)
    assert b"0a" in cut.result
    long.cancel()


# What a worker has.


async def test_a_worker_has_no_secrets_and_no_file_of_the_gateway_but_its_socket(
    workers: WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HEADGATE_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "HEADGATE_SEAL_KEYS"):
        monkeypatch.setenv(name, "secret-of-a-test")
    value = await spooled(tmp_path, LINES)
    pid = await only_worker(workers)
    value.close()
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"secret-of-a-test" not in environment
    held = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [name for name in held if str(tmp_path) in name]
    assert len([name for name in held if name.startswith("socket:")]) == 1
