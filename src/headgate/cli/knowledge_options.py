"""The options that every `headgate knowledge` command takes, and how errors of its store end a command."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.cli.command_runner import exit_on_error, load_settings
from headgate.cli.options import CONFIG, DATA_DIR, VERBOSE
from headgate.domain.errors import StoreUnavailable

_STORE_LOGGER = logging.getLogger("headgate.storage")


@contextmanager
def buffered_store_log() -> Iterator[Callable[[], None]]:
    """A StoreAway ends the block, and nothing of it is logged; otherwise all of it is, when the block ends.

    Or from the moment on when what is given here is called.
    """
    handler = _BufferingHandler()
    _STORE_LOGGER.addHandler(handler)
    _STORE_LOGGER.propagate = False
    try:
        yield handler.forward
    except StoreUnavailable:
        handler.records.clear()
        raise
    finally:
        handler.forward()


class _BufferingHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def forward(self) -> None:
        _STORE_LOGGER.removeHandler(self)
        _STORE_LOGGER.propagate = True
        for record in self.records:
            _STORE_LOGGER.handle(record)
        self.records.clear()


if TYPE_CHECKING:
    from headgate.config.settings import Flags, Settings

_STORE = click.option(
    "--store",
    metavar="URL",
    help="PostgreSQL instead of knowledge.db in the data directory: postgresql://...",
)


class StoreOptions(NamedTuple):
    """Where the documents are, and how much an error tells."""

    config: Path | None
    data_dir: Path | None
    store: str | None
    verbose: bool


def with_store_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that say where the documents are; it gets them as one Place, first."""

    @CONFIG
    @DATA_DIR
    @_STORE
    @VERBOSE
    @wraps(command)
    def command_with_options(
        *,
        config: Path | None,
        data_dir: Path | None,
        store: str | None,
        verbose: bool,
        **rest: Any,
    ) -> None:
        command(StoreOptions(config, data_dir, store, verbose), **rest)

    return command_with_options


@contextmanager
def exit_on_store_error(store_options: StoreOptions, interrupted: str = "") -> Iterator[Callable[[], None]]:
    """As `ending`; what is wrong with the store is told once, so that its log waits until that is called."""
    # Imported here as everywhere below, so that `headgate --help` answers at once.

    with (
        exit_on_error(verbose=store_options.verbose, interrupted=interrupted),
        buffered_store_log() as release,
    ):
        if store_options.verbose:
            # A traceback does not say why.
            release()
        yield release


def load_store_settings(store_options: StoreOptions) -> "Settings":
    """The settings, once it was said what is odd about them."""
    from headgate.app.config_reload import log_config_warnings

    settings = load_settings(store_flags(store_options), with_servers=False)
    log_config_warnings(settings)
    return settings


def store_flags(store_options: StoreOptions, **more: Any) -> "Flags":
    """What the command line says, with what else it says."""
    from headgate.config.settings import Flags

    return Flags(
        config=store_options.config, data_dir=store_options.data_dir, store=store_options.store, **more
    )
