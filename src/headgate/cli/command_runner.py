"""Runs a command: reads the settings, sets up logging, and ends with one sentence on an error."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from headgate.cli import INTERRUPTED, TERMINATED
from headgate.domain.errors import ConfigError, HeadgateError, KnowledgeError, StoreUnavailable
from headgate.domain.redaction import redact_secrets

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Coroutine

    from headgate.config.settings import Flags, Settings

ResultT = TypeVar("ResultT")


# Options that several commands take.
CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON)."
)
DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data."
)
TRANSPORT = click.option("--transport", help="How clients come in: stdio, http or sse.")
HOST = click.option("--host", help="The address to listen on; only loopback without authentication.")
PORT = click.option("--port", type=int, help="The port to listen on; 0 takes a free one.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
JSON_NOT_TABLES = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."
)
REFRESH = click.option(
    "--refresh", is_flag=True, help="Ask every server for its tools first, not only unknown ones."
)
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")


class CommandGroup(click.Group):
    """A group that Ctrl-C ends without a word, whatever one of its commands has begun."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises SystemExit where it is interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Click itself would print that it was aborted.
            sys.exit(INTERRUPTED)


class LazyGroup(click.Group):
    """A group whose commands are imported when one of them is needed, so that other commands start fast."""

    def __init__(self, name: str, load: Callable[[], click.Group], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._load().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load().get_command(ctx, cmd_name)


@contextmanager
def exit_on_error(*, verbose: bool, interrupted: str = "") -> Iterator[None]:
    """An error ends the command with one sentence, and Ctrl-C with the one that is given, if any.

    `verbose` puts the traceback before the sentence and changes nothing else.
    """
    try:
        yield
    except (BrokenPipeError, click.ClickException, click.Abort, click.exceptions.Exit):
        # Click ends these itself, and a closed pipe needs no message.
        raise
    except HeadgateError as error:
        _exit_with(_sentence(error), verbose=verbose)
    except OSError as error:
        _exit_with(_system_sentence(error), verbose=verbose)
    except Exception as error:  # noqa: BLE001 (the traceback is what -v is for)
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _exit_with(
            f"unexpected {text}; run it again with -v for the traceback, and report it", verbose=verbose
        )
    except KeyboardInterrupt:
        if interrupted:
            click.echo(f"headgate: {interrupted}", err=True)
        sys.exit(INTERRUPTED)


def _exit_with(sentence: str, *, verbose: bool) -> NoReturn:
    """Exit with code 2 and the sentence, with --verbose after the traceback of the current exception."""
    if verbose:
        click.echo(redact_secrets(traceback.format_exc()), err=True, nl=False)
    click.echo(f"headgate: {_printable(redact_secrets(sentence))}", err=True)
    _discard_output()
    sys.exit(2)


def _system_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"the system refused something: {reason}; run it again with -v to see what"
    return f"{os.fsdecode(error.filename)}: {reason}; correct the path, or make it usable for this user"


def _sentence(error: HeadgateError) -> str:
    if isinstance(error, StoreUnavailable) and error.why:
        # Who runs a command is the one who can mend it.
        return f"the store of the documents cannot be used: {error.why}"
    complete = isinstance(error, KnowledgeError) and not (error.hinted or error.hint_for_operators)
    if complete or error.hint.casefold() in error.message.casefold():
        return error.message
    if error.message.endswith("."):
        # A sentence for models, which is the same word for word wherever it is read.
        return f"{error.message} {error.hint[:1].upper()}{error.hint[1:].removesuffix('.')}."
    return f"{error.message}; {error.hint}"


def _discard_output() -> None:
    """Flush standard output now, so that a failure at exit prints no traceback."""
    if sys.stdout is None:
        # It was closed before the command began.
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printable(sentence: str) -> str:
    """The sentence without what a terminal would obey: it may quote a document."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in sentence)


def print_result(text: str) -> None:
    """Print a result; raises ConfigError where it cannot be written, unless its reader has gone away."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(
            f"standard output cannot be written: {error.strerror}", hint="write it to a disk that has room"
        ) from error


def load_settings(flags: "Flags", *, with_servers: bool = True) -> "Settings":
    """The settings, with a log that leaves standard error to the progress."""
    # Imported here as everywhere below, so that `headgate --help` answers at once.
    from headgate.app.log_setup import set_up_logging
    from headgate.config.loader import load

    settings = load(flags, os.environ, Path.cwd(), with_servers=with_servers)
    # Log lines of a gateway would hide the progress.
    level = "WARNING" if settings.log_level == "INFO" else settings.log_level
    set_up_logging(level, settings.log_format or "pretty", None)
    return settings


def run(work: "Coroutine[Any, Any, ResultT]") -> "ResultT":
    """The result of the work, run on an event loop of its own."""
    import asyncio

    loop_factory: Callable[[], AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        loop_factory = uvloop.Loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


def run_until_interrupted(work: "Coroutine[Any, Any, ResultT]", interrupted: str) -> "ResultT":
    """As `run`, but Ctrl-C and SIGTERM end the process with this sentence once the work has closed its own.

    A thread may be in the middle of a large document, for minutes: nothing of that would be kept.
    """
    import asyncio

    terminated = False

    def terminate(working: "asyncio.Task[ResultT]") -> None:
        nonlocal terminated
        terminated = True
        working.cancel()

    async def interruptible() -> "ResultT":
        working = asyncio.ensure_future(work)
        if sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate, working)
        try:
            return await working
        except asyncio.CancelledError:
            click.echo(f"headgate: {interrupted}", err=True)
            sys.stdout.flush()
            os._exit(TERMINATED if terminated else INTERRUPTED)

    return run(interruptible())
