"""Takes over what changes in the configuration while the gateway runs."""

import logging
from collections.abc import Callable, Mapping

from headgate.config.settings import Settings
from headgate.config.watch import changes, servers_to_run
from headgate.domain.errors import ConfigError
from headgate.domain.redaction import cleaned
from headgate.domain.server import ServerSpec

log = logging.getLogger("headgate")

_RELOAD_SECONDS = 1.0
_PREFIX_CHANGED = "proxySettings.prefix has changed: restart the gateway, the servers stay as they are"


class ConfigurationState:
    """What of the configuration is not in force, for those who look at the gateway."""

    def __init__(self, settings: Settings) -> None:
        self._rejected = settings.left_out
        # The first is about the file as a whole, the other about what only a restart takes over.
        self._broken: str | None = None
        self._unapplied: str | None = None

    @property
    def rejected(self) -> dict[str, str]:
        """The servers whose entries are wrong, and what is wrong with each."""
        return {name: cleaned(reason) for name, reason in self._rejected.items()}

    @property
    def problem(self) -> str | None:
        """What is wrong with the last edit of the file; None while the file is in force."""
        return self._broken or self._unapplied

    def report(self, error: ConfigError | None) -> None:
        """The file was read: it cannot be used, or it can."""
        self._broken = cleaned(f"{error.message}; {error.hint}") if error is not None else None

    def applied(self, settings: Settings) -> None:
        """The servers of these settings are the ones that run."""
        self._rejected, self._unapplied = settings.left_out, None

    def refused(self, reason: str) -> None:
        """The edit can be used, but not while the gateway runs."""
        self._unapplied = reason


def warn(settings: Settings) -> None:
    """Say what is odd about the configuration."""
    for warning in settings.warnings:
        log.warning(warning)


async def follow(
    load: Callable[[], Settings],
    settings: Settings,
    apply: Callable[[tuple[ServerSpec, ...], Mapping[str, str]], None],
    state: ConfigurationState,
) -> None:
    """Take over every change of the server list; what else changed needs a restart, and is said so."""
    servers, prefix = settings.servers, settings.prefix
    async for fresh in changes(load, settings, _RELOAD_SECONDS, report=state.report):
        warn(fresh)
        if fresh.prefix is not prefix:
            # Names would change under the feet of every client, and two tools could share one.
            log.warning(_PREFIX_CHANGED)
            state.refused(_PREFIX_CHANGED)
            continue
        servers = servers_to_run(fresh, servers, prefix=prefix)
        for server in servers:
            if server.name in fresh.left_out:
                log.warning(
                    "server %r keeps running with its old definition until its entry in %s is mended",
                    server.name,
                    fresh.config_path,
                )
        apply(servers, fresh.left_out)
        state.applied(fresh)
        log.info("configuration reloaded", extra={"servers": len(servers)})
        if _apart_from_servers(fresh) != _apart_from_servers(settings):
            log.warning("settings other than the servers take effect after a restart")
        settings = fresh


def _apart_from_servers(settings: Settings) -> tuple[object, ...]:
    of_servers = ("servers", "left_out", "warnings", "config_path")
    fields = (name for name in settings.__struct_fields__ if name not in of_servers)
    return tuple(getattr(settings, name) for name in fields)
