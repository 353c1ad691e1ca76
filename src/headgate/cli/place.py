"""Where the documents are that a command is about: the options that all of `headgate knowledge` take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.cli.options import CONFIG, DATA_DIR, VERBOSE
from headgate.cli.running import ending, settings_of

if TYPE_CHECKING:
    from headgate.config.settings import Flags, Settings

_STORE = click.option(
    "--store",
    metavar="URL",
    help="PostgreSQL instead of knowledge.db in the data directory: postgresql://...",
)


class Place(NamedTuple):
    """Where the documents are, and how much an error tells."""

    config: Path | None
    data_dir: Path | None
    store: str | None
    verbose: bool


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that say where the documents are; it gets them as one Place, first."""

    @CONFIG
    @DATA_DIR
    @_STORE
    @VERBOSE
    @wraps(command)
    def of_place(
        *,
        config: Path | None,
        data_dir: Path | None,
        store: str | None,
        verbose: bool,
        **rest: Any,
    ) -> None:
        command(Place(config, data_dir, store, verbose), **rest)

    return of_place


@contextmanager
def ending_at(place: Place, interrupted: str = "") -> Iterator[Callable[[], None]]:
    """As `ending`; what is wrong with the store is told once, so that its log waits until that is called."""
    # Imported here as everywhere below, so that `headgate --help` answers at once.
    from headgate.cli.store_log import held_back

    with ending(verbose=place.verbose, interrupted=interrupted), held_back() as released:
        if place.verbose:
            # A traceback does not say why.
            released()
        yield released


def settings_at(place: Place) -> "Settings":
    """The settings, once it was said what is odd about them."""
    from headgate.app.reload import warn

    settings = settings_of(flags_at(place), with_servers=False)
    warn(settings)
    return settings


def flags_at(place: Place, **more: Any) -> "Flags":
    """What the command line says, with what else it says."""
    from headgate.config.settings import Flags

    return Flags(config=place.config, data_dir=place.data_dir, store=place.store, **more)
