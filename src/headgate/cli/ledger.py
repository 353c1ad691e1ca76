"""Runs the commands about the ledger: reads the settings, asks the ledger, prints what it says."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.cli.running import ending, run, say, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.config.settings import Settings

T = TypeVar("T")

_VERBOSE_KEY = "headgate.verbose"


def _keep_verbose(context: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001
    context.meta[_VERBOSE_KEY] = given


# Read by `tell_of_ledger`, so that no command has to hand it on.
VERBOSE = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_keep_verbose,
    help="Show the traceback of an error.",
)


def tell_of_ledger(
    config: Path | None,
    data_dir: Path | None,
    work: "Callable[[Settings], Coroutine[Any, Any, T]]",
    printed: "Callable[[T], str]",
) -> None:
    """Print what the ledger says; a refusal ends the command."""
    from headgate.config.settings import Flags

    with ending(verbose=click.get_current_context().meta[_VERBOSE_KEY]):
        found = run(work(settings_of(Flags(config=config, data_dir=data_dir))))
        say(printed(found))


def options_of(config: Path | None, data_dir: Path | None) -> str:
    """The options that a further command needs to find the same ledger, each after a space."""
    given = {"--config": config, "--data-dir": data_dir}
    return "".join(f" {name} {shlex.quote(str(path))}" for name, path in given.items() if path is not None)
