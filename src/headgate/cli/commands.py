"""All commands of `headgate`: each parses, builds, runs; an error is one sentence with the fix."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from headgate import __version__
from headgate.cli import command_runner as options
from headgate.cli.command_runner import (
    CommandGroup,
    LazyGroup,
    exit_on_error,
    load_settings,
    print_result,
    run,
    run_until_interrupted,
)
from headgate.cli.ledger_commands import operations, transactions

if TYPE_CHECKING:
    from headgate.config.settings import Flags, Settings
    from headgate.knowledge.server import KnowledgeOptions, StoreOptions

# The words of `Mode` and `Dialect`, without what would have to be imported for them.
_MODES = ("auto", "full", "partitioned", "slim", "search", "dynamic", "budget")
_DIALECTS = ("plain", "gemini", "openai")


# The document server: configuration, event loop, errors and output for its commands.

# A person at a terminal would otherwise see nothing at all.
_WAITING = (
    "waiting for an MCP client on standard input; Ctrl-C ends it. "
    "For clients that come over HTTP: headgate knowledge serve --transport http"
)


class KnowledgeHost:
    """The CommandHost of the document server."""

    run = staticmethod(run)
    run_until_interrupted = staticmethod(run_until_interrupted)
    exit_on_error = staticmethod(exit_on_error)
    print_result = staticmethod(print_result)

    def load_options(self, store_options: "StoreOptions") -> "KnowledgeOptions":
        """The options that configuration and command line ask for; raises ConfigError."""
        from headgate.app.config_reload import log_config_warnings
        from headgate.app.knowledge import knowledge_options

        settings = load_settings(_flags(store_options), with_servers=False)
        log_config_warnings(settings)
        return knowledge_options(settings)

    def serve(
        self, store_options: "StoreOptions", *, transport: str | None, host: str | None, port: int | None
    ) -> None:
        """Run a gateway that serves only the documents; raises ConfigError."""
        _run_gateway(_flags(store_options, transport=transport, host=host, port=port), knowledge_only=True)


def _run_gateway(flags: "Flags", *, knowledge_only: bool) -> NoReturn:
    # Imported here, so that `headgate --help` answers at once.
    from headgate.app.config_reload import log_config_warnings
    from headgate.app.gateway_server import serve
    from headgate.app.knowledge import knowledge_only_settings
    from headgate.app.log_setup import set_up_logging
    from headgate.config.loader import load

    def read() -> "Settings":
        settings = load(flags, os.environ, Path.cwd(), with_servers=not knowledge_only)
        return knowledge_only_settings(settings) if knowledge_only else settings

    settings = read()
    set_up_logging(settings.log_level, settings.log_format, settings.log_file)
    log_config_warnings(settings)
    if knowledge_only and settings.transport == "stdio" and sys.stdin.isatty():
        click.echo(f"headgate: {_WAITING}", err=True)
    sys.exit(run(serve(settings, read)))


def _flags(store_options: "StoreOptions", **more: Any) -> "Flags":
    from headgate.config.settings import Flags

    return Flags(
        config=store_options.config, data_dir=store_options.data_dir, store=store_options.store, **more
    )


def _load_commands() -> click.Group:
    from headgate.knowledge.server import load_command_group

    return load_command_group()


knowledge = LazyGroup(
    "knowledge",
    _load_commands,
    help="Ingest the team's own documents, and search them.",
    context_settings={"obj": KnowledgeHost()},
)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def cli() -> None:
    """One gateway between AI agents and every MCP server they use."""


cli.add_command(operations)
cli.add_command(transactions)
cli.add_command(knowledge)


@cli.command()
@options.CONFIG
@options.TRANSPORT
@options.HOST
@options.PORT
@options.DATA_DIR
@click.option(
    "--listing", help="What tools/list shows: auto, full, partitioned, slim, search, dynamic or budget."
)
@options.VERBOSE
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
    from headgate.config.settings import Flags

    flags = Flags(
        config=config, transport=transport, host=host, port=port, data_dir=data_dir, listing=listing
    )
    with exit_on_error(verbose=verbose):
        _run_gateway(flags, knowledge_only=False)


@cli.command("eval")
@click.argument("set_dir", required=False, type=click.Path(path_type=Path))
@options.CONFIG
@options.DATA_DIR
@options.JSON_NOT_TABLES
@click.option("--limit", type=click.IntRange(min=1), help="The most rows of each list of findings.")
@options.REFRESH
@options.VERBOSE
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
    from headgate.app.config_reload import log_config_warnings
    from headgate.app.search_evaluation import evaluate as ask
    from headgate.app.search_evaluation import format_evaluation
    from headgate.config.settings import Flags

    with exit_on_error(verbose=verbose):
        settings = load_settings(Flags(config=config, data_dir=data_dir))
        if set_dir is None and settings.config_path is not None:
            log_config_warnings(settings)
        report = run(ask(settings, set_dir, sys.stderr, refresh=refresh))
        print_result(format_evaluation(report, as_json=as_json, rows=limit))


@cli.command("listing")
@options.CONFIG
@options.DATA_DIR
@click.option("--mode", type=click.Choice(_MODES, case_sensitive=False), help="Name every tool in this mode.")
@click.option("--client", default="", help="What the client calls itself (clientInfo.name).")
@click.option("--dialect", type=click.Choice(_DIALECTS, case_sensitive=False), help="As for such clients.")
@click.option(
    "--budget", type=click.IntRange(500, 1_000_000), help="The tokens of the modes budget and auto."
)
@options.JSON_NOT_TABLES
@options.REFRESH
@options.VERBOSE
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
    from headgate.app.config_reload import log_config_warnings
    from headgate.app.listing_preview import ListingPreviewOptions, preview_listing
    from headgate.app.listing_report import format_preview
    from headgate.catalog.tool_dialects import Dialect
    from headgate.config.settings import Flags
    from headgate.domain.listing_mode import ListingMode

    preview_options = ListingPreviewOptions(
        mode=ListingMode(mode) if mode else None,
        client=client,
        dialect=Dialect(dialect) if dialect else None,
        budget_tokens=budget,
        refresh=refresh,
    )
    with exit_on_error(verbose=verbose):
        settings = load_settings(Flags(config=config, data_dir=data_dir))
        if settings.config_path is not None:
            log_config_warnings(settings)
        report = run(preview_listing(settings, preview_options, sys.stderr))
        print_result(format_preview(report, as_json=as_json))
