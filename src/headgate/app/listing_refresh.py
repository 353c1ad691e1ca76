"""Follows changes of the tools: builds listings anew, notifies clients, runs the operator's command."""

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Collection, Container
from typing import Protocol

from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import ClientSession
from headgate.event_loop import BackgroundTasks
from headgate.server.change_notifier import ChangeNotifier

log = logging.getLogger("headgate")
web_log = logging.getLogger("headgate.web")

# Fifty servers that connect one after the other lead to one new listing, not fifty.
_SETTLE_SECONDS = 0.05
_COMMAND_SECONDS = 60.0


class RefreshableListings(Protocol):
    async def refresh(self) -> Collection[str]:
        """Build listings anew; returns the visibility groups whose listing has changed."""


class ListingRefresher:
    """Builds listings anew after the catalog has changed, and notifies the clients that see a difference."""

    def __init__(
        self,
        tool_listings: RefreshableListings,
        change_notifier: ChangeNotifier,
        on_refreshed: Callable[[], None],
        tasks: BackgroundTasks,
    ) -> None:
        """`on_refreshed` is called when listings are as the catalog is."""
        self._tool_listings = tool_listings
        self._on_refreshed = on_refreshed
        self._change_notifier = change_notifier
        self._runs = CoalescedRuns(tasks, "listings", self._refresh)

    def schedule(self) -> None:
        """Refresh soon: the tools, or the way they are listed, have changed."""
        self._runs.request()

    async def _refresh(self) -> None:
        await asyncio.sleep(_SETTLE_SECONDS)
        try:
            visibility_groups = await self._tool_listings.refresh()
        except Exception:
            # Clients that list get the same failure with its reason; the next change tries again.
            log.exception("listings not made")
            return
        self._on_refreshed()
        if visibility_groups:
            self._change_notifier.list_changed(ItemKind.TOOLS.capability, visibility_groups)


class ListChangedHook:
    """Runs the operator's command after the tool list of any client has changed."""

    def __init__(self, command: str, tasks: BackgroundTasks) -> None:
        # It is the operator's, so it follows what anybody sees.
        self.identity = LOCAL_IDENTITY
        self._command = shlex.split(command)
        self._runs = CoalescedRuns(tasks, "list-changed command", self._run_command)

    def list_changed(self, capability: str, visibility_groups: Container[str] | None) -> None:
        if capability == "tools":
            self._runs.request()

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """Ignored: the command is about lists."""

    async def _run_command(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            web_log.warning("list-changed command did not start", extra={"reason": str(error)})
            return
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                code = await process.wait()
        except TimeoutError:
            web_log.warning("list-changed command took too long", extra={"seconds": _COMMAND_SECONDS})
        else:
            web_log.info("list-changed command ended", extra={"exit_code": code})
        finally:
            if process.returncode is None:
                # With everything that it started.
                os.killpg(process.pid, signal.SIGKILL)


class CoalescedRuns:
    """Runs a function in the background, one run at a time; requests during a run lead to one more."""

    def __init__(self, tasks: BackgroundTasks, name: str, run_once: Callable[[], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._name = name
        self._run_once = run_once
        self._requested = False
        self._running: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Run it once more, now or after the run that is under way."""
        self._requested = True
        if self._running is None or self._running.done():
            self._running = self._tasks.start_task(self._run(), name=self._name)

    async def _run(self) -> None:
        while self._requested:
            self._requested = False
            await self._run_once()
