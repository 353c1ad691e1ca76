"""Options that every `headgate knowledge` command takes, and the host that runs the command."""

import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import click

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.options import KnowledgeOptions

T = TypeVar("T")

JSON_NOT_TABLES = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."
)
_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON)."
)
_DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data."
)
_STORE = click.option(
    "--store",
    metavar="URL",
    help="PostgreSQL instead of knowledge.db in the data directory: postgresql://...",
)
_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
_STORE_LOGGER = logging.getLogger("headgate.storage")


class StoreOptions(NamedTuple):
    """The options that locate the store, and whether an error shows its traceback."""

    config: Path | None
    data_dir: Path | None
    store: str | None
    verbose: bool


class CommandHost(Protocol):
    """The program that the commands belong to; the object of the click context."""

    def load_options(self, store_options: StoreOptions) -> KnowledgeOptions:
        """Read the configuration and set up logging; raises ConfigError."""

    def serve(
        self, store_options: StoreOptions, *, transport: str | None, host: str | None, port: int | None
    ) -> None:
        """Serve the documents to MCP clients; raises ConfigError, and SystemExit at the end."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on an event loop of its own."""

    def run_until_interrupted(self, work: Coroutine[Any, Any, T], interrupted: str) -> T:
        """As `run`; SIGINT and SIGTERM print the sentence and end the process."""

    def exit_on_error(self, *, verbose: bool, interrupted: str = "") -> AbstractContextManager[None]:
        """End the process with one sentence on an error of the block."""

    def print_result(self, text: str) -> None:
        """Print to standard output; raises ConfigError when that cannot be written."""


def command_host() -> CommandHost:
    host: CommandHost = click.get_current_context().obj
    return host


def with_store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that locate the store; the command gets them as StoreOptions, first."""

    @_CONFIG
    @_DATA_DIR
    @_STORE
    @_VERBOSE
    @wraps(command)
    def command_with_options(**given: Any) -> None:
        command(StoreOptions(*(given.pop(name) for name in StoreOptions.__annotations__)), **given)

    return command_with_options


@contextmanager
def exit_on_store_error(store_options: StoreOptions, interrupted: str = "") -> Iterator[Callable[[], None]]:
    """As `exit_on_error`; an unavailable store is reported once, so its log is buffered.

    Yields a function that ends the buffering.
    """
    with (
        command_host().exit_on_error(verbose=store_options.verbose, interrupted=interrupted),
        buffered_store_log() as release,
    ):
        if store_options.verbose:
            # The log has the reason, which the traceback lacks.
            release()
        yield release


@contextmanager
def buffered_store_log() -> Iterator[Callable[[], None]]:
    """Buffer the log of the store until the block ends; StoreUnavailable discards the buffer.

    Yields a function that ends the buffering earlier.
    """
    from logging.handlers import BufferingHandler

    handler = BufferingHandler(sys.maxsize)
    _STORE_LOGGER.addHandler(handler)
    _STORE_LOGGER.propagate = False

    def forward() -> None:
        _STORE_LOGGER.removeHandler(handler)
        _STORE_LOGGER.propagate = True
        for record in handler.buffer:
            _STORE_LOGGER.handle(record)
        handler.buffer.clear()

    try:
        yield forward
    except StoreUnavailable:
        handler.buffer.clear()
        raise
    finally:
        forward()
