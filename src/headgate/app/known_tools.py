"""The tools of the configured servers, recorded or listed now, for commands."""

import asyncio
from collections.abc import Sequence

import msgspec

from headgate.app.mode_listing import load_recorded_catalog
from headgate.app.wiring import GatewayRuntime, open_gateway_runtime
from headgate.catalog.evaluation.evaluation_report import UnreachedServer
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.errors import ConfigError, UpstreamUnavailable
from headgate.domain.item import Item
from headgate.domain.terminal import ProgressPrinter

# Long enough for a server that is downloaded before it starts.
_CONNECT_SECONDS = 90.0


async def known_tools(
    settings: Settings, progress: ProgressPrinter, *, refresh: bool
) -> tuple[list[Item], list[UnreachedServer]]:
    """Every tool, and the servers that could not be listed; raises ConfigError where there is no tool.

    Connects to servers without a recorded listing; `refresh` connects to all.
    """
    enabled = [server.name for server in settings.servers if server.enabled]
    if not enabled:
        where = settings.config_path or "the configuration"
        problem = f"{where} has no enabled server, so there is no tool"
        raise ConfigError(problem, hint="enable one there, or name another configuration with --config")
    # This gateway serves no client, so it needs neither search nor hook, and keeps the data.
    quiet = msgspec.structs.replace(
        settings, listing="full", embedder="BM25", list_changed_exec=None, reset_data=False
    )
    recorded = await load_recorded_catalog(quiet)
    items = list(recorded.catalog.every_tool)
    unreached: list[UnreachedServer] = []
    if to_connect := enabled if refresh else recorded.unknown:
        async with open_gateway_runtime(quiet, forget=False) as runtime:
            failed = await _connect(runtime, to_connect, progress)
            items = list(runtime.catalog.every_tool)
            unreached = [
                one for one in failed if not runtime.catalog.has_own_listing(one.name, PLAIN_PROFILE)
            ]
        for one in failed:
            if one not in unreached:
                progress.print_line(f"{one.reason}; what it listed before is taken")
    if not items:
        reasons = "".join(f"; {one.reason}" for one in unreached)
        reasons = reasons or ", because no server has one that is not hidden"
        raise ConfigError(f"there is no tool{reasons}", hint="correct the servers and try again")
    return items, unreached


async def _connect(
    runtime: GatewayRuntime, servers: Sequence[str], progress: ProgressPrinter
) -> list[UnreachedServer]:
    """Wait, for a bounded time, until each server has listed or failed."""
    progress.print_line(f"connecting to {', '.join(servers)}")
    async with asyncio.TaskGroup() as group:
        connecting = [group.create_task(_await_listed(runtime, name)) for name in servers]
        for task in connecting:
            task.add_done_callback(
                lambda _: progress.show_count("servers tried", _count_done(connecting), len(servers))
            )
    progress.clear()
    return [one for task in connecting if (one := task.result()) is not None]


def _count_done(tasks: Sequence["asyncio.Task[UnreachedServer | None]"]) -> int:
    return sum(task.done() for task in tasks)


async def _await_listed(runtime: GatewayRuntime, server: str) -> UnreachedServer | None:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await runtime.fleet.await_ready(server)
    except UpstreamUnavailable as error:
        return UnreachedServer(server, error.message)
    except TimeoutError:
        return UnreachedServer(server, f"{server!r} was not ready in {_CONNECT_SECONDS:g} s")
    return None
