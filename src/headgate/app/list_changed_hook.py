"""Runs the operator's command after the tool list has changed."""

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Container

from headgate.domain.mcp_request import ClientSession

log = logging.getLogger("headgate.web")

_TIMEOUT_SECONDS = 60.0


class ListChangedHook:
    """One run at a time; changes during a run lead to one more."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._again = False
        self._running: asyncio.Task[None] | None = None

    def list_changed(self, capability: str, visibility_groups: Container[str] | None) -> None:
        """Run the command after anybody's tools have changed, now or after the run that is under way."""
        if capability != "tools":
            return
        self._again = True
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """A single resource is nothing to run a command for."""

    async def _run(self) -> None:
        while self._again:
            self._again = False
            await self._run_once()

    async def _run_once(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            log.warning("list-changed command did not start", extra={"reason": str(error)})
            return
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                code = await process.wait()
        except TimeoutError:
            log.warning("list-changed command took too long", extra={"seconds": _TIMEOUT_SECONDS})
        else:
            log.info("list-changed command ended", extra={"exit_code": code})
        finally:
            if process.returncode is None:
                # With everything that it started.
                os.killpg(process.pid, signal.SIGKILL)
