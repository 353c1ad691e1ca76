"""Background tasks whose failure is logged."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("headgate")


def log_task_failure(task: "asyncio.Task[None]") -> None:
    """Say it when something that should go on, or end well, has failed."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed", task.get_name(), exc_info=error)


def start_background_task(
    work: Coroutine[Any, Any, None], name: str, tasks: "set[asyncio.Task[None]]"
) -> None:
    """Do it beside everything else; `tasks` holds it until it is done."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(log_task_failure)
