"""Background tasks belong to an owner, and long work yields to others."""

import asyncio

import pytest

from headgate.event_loop import BackgroundTasks, TimeSlice


async def test_the_end_of_the_block_cancels_its_tasks_and_waits_for_them() -> None:
    cleaned_up = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    async with BackgroundTasks() as tasks:
        tasks.start(wait(), name="waiting")
        await asyncio.sleep(0)
        assert len(tasks) == 1
    assert cleaned_up.is_set()
    assert not len(tasks)


async def test_a_failure_is_logged_under_the_name_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async with BackgroundTasks() as tasks:
        tasks.start(fail(), name="listing")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not len(tasks)
    (record,) = caplog.records
    assert record.getMessage() == "listing failed"
    assert record.exc_info is not None


async def test_a_task_that_is_cancelled_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()
    task = tasks.start_task(asyncio.sleep(60), name="sleeping")
    tasks.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert not len(tasks)
    assert not caplog.records


async def test_work_within_its_time_slice_does_not_yield() -> None:
    others = asyncio.Event()
    asyncio.get_running_loop().call_soon(others.set)
    time_slice = TimeSlice()
    await time_slice.yield_if_expired()
    assert not others.is_set()
    while not time_slice.expired:
        continue
    await time_slice.yield_if_expired()
    assert others.is_set()
    assert not time_slice.expired
