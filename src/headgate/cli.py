"""The command line: parses, builds, runs; an error is one sentence with the fix."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from headgate import __version__
from headgate.domain.errors import HeadgateError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine

    from headgate.config import Settings

T = TypeVar("T")

# The words of `Mode` and `Dialect`, without what would have to be imported for them.
_MODES = ("auto", "full", "slim", "search", "dynamic", "budget")
_DIALECTS = ("plain", "gemini", "openai")
# And those of `State`.
_STATES = ("in_doubt", "intent", "asked", "done", "failed")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def cli() -> None:
    """One gate between an AI agent and every MCP server it uses."""


@cli.command()
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON).")
@click.option("--transport", help="How clients come in: stdio, http or sse.")
@click.option("--host", help="The address to listen on; only loopback without authentication.")
@click.option("--port", type=int, help="The port to listen on; 0 takes a free one.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data.")
@click.option("--listing", help="What tools/list shows: auto, full, slim, search, dynamic or budget.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def serve(
    config: Path | None,
    transport: str | None,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    listing: str | None,
    verbose: bool,  # noqa: FBT001 (the shape that click wants)
) -> None:
    """Run the gateway."""
    # Imported here, so that `headgate --help` answers at once.
    import asyncio

    from headgate.app import serve as run
    from headgate.app import warn
    from headgate.config import Flags, Settings, load
    from headgate.console.logs import set_up

    flags = Flags(
        config=config, transport=transport, host=host, port=port, data_dir=data_dir, listing=listing
    )

    def read() -> Settings:
        return load(flags, os.environ, Path.cwd())

    try:
        settings = read()
        set_up(settings.log_level, settings.log_format, settings.log_file)
        warn(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            sys.exit(runner.run(run(settings, read)))
    except HeadgateError as error:
        _refuse(error, verbose=verbose)
    except KeyboardInterrupt:
        sys.exit(130)


@cli.command("eval")
@click.argument("set_dir", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--limit", type=click.IntRange(min=1), help="The most rows of each list of findings.")
@click.option("--refresh", is_flag=True, help="Ask every server for its tools first, not only unknown ones.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def evaluate(
    set_dir: Path | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001 (the shape that click wants)
    limit: int | None,
    refresh: bool,  # noqa: FBT001
    verbose: bool,  # noqa: FBT001
) -> None:
    """Say how well search finds tools.

    Of SET_DIR, a directory with tools.jsonl and queries.jsonl; without it, of the configured servers.
    """
    import asyncio

    from headgate.app import warn
    from headgate.app.evaluation import evaluate as run
    from headgate.app.evaluation import printed
    from headgate.config import Flags, load
    from headgate.console.logs import set_up

    try:
        settings = load(Flags(config=config, data_dir=data_dir), os.environ, Path.cwd())
        # Standard error tells the progress; what a gateway logs in passing would only hide it.
        level = "WARNING" if settings.log_level == "INFO" else settings.log_level
        set_up(level, settings.log_format or "pretty", None)
        if set_dir is None and settings.config_path is not None:
            warn(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            report = runner.run(run(settings, set_dir, sys.stderr, refresh=refresh))
        click.echo(printed(report, as_json=as_json, rows=limit))
    except HeadgateError as error:
        _refuse(error, verbose=verbose)
    except KeyboardInterrupt:
        sys.exit(130)


@cli.command("listing")
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data.")
@click.option("--mode", type=click.Choice(_MODES, case_sensitive=False), help="Name every tool in this mode.")
@click.option("--client", default="", help="What the client calls itself (clientInfo.name).")
@click.option("--dialect", type=click.Choice(_DIALECTS, case_sensitive=False), help="As for such clients.")
@click.option(
    "--budget", type=click.IntRange(500, 1_000_000), help="The tokens of the modes budget and auto."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--refresh", is_flag=True, help="Ask every server for its tools first, not only unknown ones.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def listing(  # noqa: PLR0913 (one for each option)
    config: Path | None,
    data_dir: Path | None,
    mode: str | None,
    client: str,
    dialect: str | None,
    budget: int | None,
    as_json: bool,  # noqa: FBT001 (the shape that click wants)
    refresh: bool,  # noqa: FBT001
    verbose: bool,  # noqa: FBT001
) -> None:
    """Say what clients would see of the tools, and what it costs.

    Every mode in tokens; with --mode the listing of that mode, tool by tool.
    """
    import asyncio

    from headgate.app import warn
    from headgate.app.listing import Wish, printed, survey
    from headgate.catalog.dialects import Dialect
    from headgate.config import Flags, load
    from headgate.console.logs import set_up
    from headgate.domain.listing import Mode

    wish = Wish(
        mode=Mode(mode) if mode else None,
        client=client,
        dialect=Dialect(dialect) if dialect else None,
        budget_tokens=budget,
        refresh=refresh,
    )
    try:
        settings = load(Flags(config=config, data_dir=data_dir), os.environ, Path.cwd())
        # As for `eval`: standard error tells the progress.
        level = "WARNING" if settings.log_level == "INFO" else settings.log_level
        set_up(level, settings.log_format or "pretty", None)
        if settings.config_path is not None:
            warn(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            report = runner.run(survey(settings, wish, sys.stderr))
        click.echo(printed(report, as_json=as_json))
    except HeadgateError as error:
        _refuse(error, verbose=verbose)
    except KeyboardInterrupt:
        sys.exit(130)


@cli.group()
def operations() -> None:
    """Look at recorded calls, and settle those in doubt."""


_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON)."
)
_DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@operations.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Those in this state; several may be named. Usual are those in doubt and those under way.",
)
@_CONFIG
@_DATA_DIR
@_JSON
def list_operations(
    states: tuple[str, ...],
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001 (the shape that click wants)
) -> None:
    """Name recorded calls, the oldest first."""
    from headgate.app import operations as ledger
    from headgate.delivery.ledger import State

    wanted = tuple(map(State, states)) or ledger.OPEN_STATES
    found = _asked(config, data_dir, lambda settings: ledger.list_operations(settings, wanted))
    click.echo(ledger.printed_list(found, as_json=as_json))


@operations.command("show")
@click.argument("op_id")
@_CONFIG
@_DATA_DIR
@_JSON
def show_operation(
    op_id: str,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Tell what is known of the recorded call OP_ID."""
    from headgate.app import operations as ledger

    found = _asked(config, data_dir, lambda settings: ledger.show_operation(settings, op_id))
    click.echo(ledger.printed_operation(found, as_json=as_json))


@operations.command("resolve")
@click.argument("op_id")
@click.option("--happened", is_flag=True, help="The call was carried out.")
@click.option("--did-not-happen", "did_not_happen", is_flag=True, help="The call was not carried out.")
@_CONFIG
@_DATA_DIR
def resolve_operation(
    op_id: str,
    happened: bool,  # noqa: FBT001
    did_not_happen: bool,  # noqa: FBT001
    config: Path | None,
    data_dir: Path | None,
) -> None:
    """Settle the call OP_ID, which is in doubt: a repeat with its key is carried out, or never again."""
    from headgate.app import operations as ledger

    if happened and did_not_happen:
        raise click.UsageError("--happened and --did-not-happen contradict each other: say one of them.")
    if not happened and not did_not_happen:
        raise click.UsageError("Say --happened or --did-not-happen.")
    found = _asked(
        config, data_dir, lambda settings: ledger.resolve_operation(settings, op_id, happened=happened)
    )
    click.echo(f"Operation {found.op_id} is {found.state}.")


def _asked(
    config: Path | None, data_dir: Path | None, work: "Callable[[Settings], Coroutine[Any, Any, T]]"
) -> "T":
    """What the ledger says; a refusal ends the command."""
    import asyncio

    from headgate.config import Flags, load
    from headgate.console.logs import set_up

    try:
        settings = load(Flags(config=config, data_dir=data_dir), os.environ, Path.cwd())
        level = "WARNING" if settings.log_level == "INFO" else settings.log_level
        set_up(level, settings.log_format or "pretty", None)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work(settings))
    except HeadgateError as error:
        _refuse(error, verbose=False)
    except KeyboardInterrupt:
        sys.exit(130)


def _refuse(error: HeadgateError, *, verbose: bool) -> NoReturn:
    if verbose:
        raise error
    click.echo(f"headgate: {error.message}; {error.hint}", err=True)
    sys.exit(2)


def _loop_factory() -> "type[AbstractEventLoop] | None":
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.Loop


def main() -> None:
    """The entry point of `headgate`."""
    cli()
