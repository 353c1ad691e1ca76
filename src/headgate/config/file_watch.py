"""Watches the configuration file and reads it again after a change."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError
from headgate.domain.server_spec import ServerSpec

log = logging.getLogger("headgate.config")

Load = Callable[[], Settings]
Sleep = Callable[[float], Awaitable[object]]
Fingerprint = tuple[int, int, int] | None
# Called in a thread with the error in the file, or with None when the file is valid.
Report = Callable[[ConfigError | None], None]


async def watch_settings(
    load: Load,
    current: Settings,
    interval_seconds: float,
    *,
    report: Report = lambda _error: None,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Settings, None]:
    """Each new Settings, when the file that `current` came from has really changed; never ends by itself.

    Without a file it waits until `load` finds one. A broken edit is logged once, in one sentence, and
    `report` hears of it and of its end.
    Files are read in a thread, so a slow disk does not hold up the loop.
    """
    reported = ""
    while current.config_path is None:
        await sleep(interval_seconds)
        try:
            settings = await asyncio.to_thread(load)
        except ConfigError as error:
            report(error)
            if error.message != reported:
                reported = error.message
                _log_config_error(error)
            continue
        report(None)
        if settings.config_path is not None:
            current = settings
            yield current
    file = _WatchedConfigFile(current.config_path, load, report)
    while True:
        await sleep(interval_seconds)
        fresh = await asyncio.to_thread(file.read_if_changed)
        if fresh is not None and fresh != current:
            current = fresh
            yield current


def servers_to_run(fresh: Settings, running: Sequence[ServerSpec], *, prefix: bool) -> tuple[ServerSpec, ...]:
    """The servers of `fresh`, and each that runs and whose new entry is wrong: as it was and where it was.

    `prefix` is the one in force: where it is false, a second server could have tools of the same names.
    """
    servers = list(fresh.servers)
    for position, spec in enumerate(running):
        if not spec.enabled or spec.name not in fresh.left_out:
            continue
        if prefix or not any(server.enabled for server in servers):
            # Behind the last of those before it that is still there, or first.
            names = [server.name for server in servers]
            before = [names.index(one.name) + 1 for one in running[:position] if one.name in names]
            servers.insert(before[-1] if before else 0, spec)
    return tuple(servers)


class _WatchedConfigFile:
    """The file as it was last seen, with the variables beside it.

    It is read twice: when it looks different, and one look later when it looks the same again. The second
    time catches a write within the resolution of the file system's clock, and by then the write is
    complete, so an error is worth reporting.
    """

    def __init__(self, path: Path, load: Load, report: Report) -> None:
        self._path = path
        self._load = load
        self._report = report
        self._is_stable = False
        self._env_files: tuple[Path, ...] = ()
        # Never equal to a real look, so that an edit before the first one is not missed.
        self._fingerprints: object = self

    def read_if_changed(self) -> Settings | None:
        """The settings to compare with those in force; None where there is nothing new or it is broken."""
        files = (self._path, self._path.parent / ".env", *self._env_files)
        seen = tuple(map(_fingerprint, files))
        if seen == self._fingerprints and self._is_stable:
            return None
        self._fingerprints, self._is_stable = seen, seen == self._fingerprints
        try:
            settings = self._read()
        except ConfigError as error:
            if self._is_stable:
                _log_config_error(error)
                self._report(error)
            return None
        self._report(None)
        return settings

    def _read(self) -> Settings:
        if _fingerprint(self._path) is None:
            raise ConfigError(f"{self._path} is gone", hint="put it back")
        settings = self._load()
        if settings.config_path != self._path:
            # Removed a moment ago, or a file that comes before it in the search was added.
            raise ConfigError(
                f"{settings.config_path or 'no file'} would be read instead of {self._path}",
                hint="restart the gateway to use it",
            )
        self._env_files = settings.env_files
        return settings


def _fingerprint(path: Path) -> Fingerprint:
    """Values that change when a file is edited, replaced or removed."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _log_config_error(error: ConfigError) -> None:
    log.error("the configuration in force stays: %s; %s", error.message, error.hint)
