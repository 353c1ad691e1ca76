"""Applies changes of the configuration file while the gateway runs."""

import logging
from collections.abc import Callable, Mapping

from headgate.config.file_watch import servers_to_run, watch_settings
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError
from headgate.domain.redaction import redact
from headgate.domain.server_spec import ServerSpec

log = logging.getLogger("headgate")

_RELOAD_SECONDS = 1.0
_PREFIX_CHANGED = "proxySettings.prefix has changed: restart the gateway, the servers stay as they are"


class ConfigurationState:
    """The parts of the configuration that are not in force, for /ready and the start page."""

    def __init__(self, settings: Settings) -> None:
        self._rejected = settings.left_out
        # The first concerns the file as a whole, the other a change that needs a restart.
        self._read_error: str | None = None
        self._restart_reason: str | None = None

    @property
    def rejected(self) -> dict[str, str]:
        """The servers with invalid entries, and the reason for each."""
        return {name: redact(reason) for name, reason in self._rejected.items()}

    @property
    def problem(self) -> str | None:
        return self._read_error or self._restart_reason

    def record_read(self, error: ConfigError | None) -> None:
        self._read_error = redact(f"{error.message}; {error.hint}") if error is not None else None

    def record_applied(self, settings: Settings) -> None:
        self._rejected, self._restart_reason = settings.left_out, None

    def record_restart_needed(self, reason: str) -> None:
        self._restart_reason = reason


def log_config_warnings(settings: Settings) -> None:
    for warning in settings.warnings:
        log.warning(warning)


async def follow_config_changes(
    load: Callable[[], Settings],
    settings: Settings,
    apply: Callable[[tuple[ServerSpec, ...], Mapping[str, str]], None],
    state: ConfigurationState,
) -> None:
    """Apply every change of the servers; other changes need a restart, and are logged. Never returns."""
    servers, prefix = settings.servers, settings.prefix
    async for fresh in watch_settings(load, settings, _RELOAD_SECONDS, report=state.record_read):
        log_config_warnings(fresh)
        if fresh.prefix is not prefix:
            # The names of tools would change for connected clients, and two tools could share one.
            log.warning(_PREFIX_CHANGED)
            state.record_restart_needed(_PREFIX_CHANGED)
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
        state.record_applied(fresh)
        log.info("configuration reloaded", extra={"servers": len(servers)})
        if _settings_besides_servers(fresh) != _settings_besides_servers(settings):
            log.warning("settings other than the servers take effect after a restart")
        settings = fresh


def _settings_besides_servers(settings: Settings) -> tuple[object, ...]:
    of_servers = ("servers", "left_out", "warnings", "config_path")
    fields = (name for name in settings.__struct_fields__ if name not in of_servers)
    return tuple(getattr(settings, name) for name in fields)
