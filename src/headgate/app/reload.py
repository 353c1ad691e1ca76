"""Takes over what changes in the configuration while the gateway runs."""

import logging
from collections.abc import Callable

from headgate.config.settings import Settings
from headgate.config.watch import changes, servers_to_run
from headgate.domain.server import ServerSpec

log = logging.getLogger("headgate")

_RELOAD_SECONDS = 1.0


def warn(settings: Settings) -> None:
    """Say what is odd about the configuration."""
    for warning in settings.warnings:
        log.warning(warning)


async def follow(
    load: Callable[[], Settings], settings: Settings, apply: Callable[[tuple[ServerSpec, ...]], None]
) -> None:
    """Take over every change of the server list; what else changed needs a restart, and is said so."""
    servers, prefix = settings.servers, settings.prefix
    async for fresh in changes(load, settings, _RELOAD_SECONDS):
        warn(fresh)
        if fresh.prefix is not prefix:
            # Names would change under the feet of every client, and two tools could share one.
            log.warning("proxySettings.prefix has changed: restart the gateway, the servers stay as they are")
            continue
        servers = servers_to_run(fresh, servers, prefix=prefix)
        for server in servers:
            if server.name in fresh.left_out:
                log.warning(
                    "server %r keeps running with its old definition until its entry in %s is mended",
                    server.name,
                    fresh.config_path,
                )
        apply(servers)
        log.info("configuration reloaded", extra={"servers": len(servers)})
        if _apart_from_servers(fresh) != _apart_from_servers(settings):
            log.warning("settings other than the servers take effect after a restart")
        settings = fresh


def _apart_from_servers(settings: Settings) -> tuple[object, ...]:
    of_servers = ("servers", "left_out", "warnings", "config_path")
    fields = (name for name in settings.__struct_fields__ if name not in of_servers)
    return tuple(getattr(settings, name) for name in fields)
