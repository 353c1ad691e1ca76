"""`headgate knowledge`: documents in, answers out."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.cli.command_runner import exit_on_error, print_result, run
from headgate.cli.knowledge_ingest import ingest, watch
from headgate.cli.knowledge_options import (
    StoreOptions,
    exit_on_store_error,
    load_store_settings,
    store_flags,
    with_store_options,
)
from headgate.cli.knowledge_queries import chunk, search, sources, vendor
from headgate.cli.options import HOST, JSON_NOT_TABLES, PORT, TRANSPORT

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.knowledge.commands.export import ExportPart

# The words of `What`, without what would have to be imported for them.
_PARTS = ("all", "sources", "chunks", "graph", "mentions", "imported")
# To somebody who sees nothing else: a client is no person at a terminal.
_WAITING = (
    "waiting for an MCP client on standard input; Ctrl-C ends it. "
    "For clients that come over HTTP: headgate knowledge serve --transport http"
)


@click.group()
def knowledge() -> None:
    """Ingest the team's own documents, and search them."""


for command in (ingest, watch, search, vendor, chunk, sources):
    knowledge.add_command(command)


@knowledge.command()
@JSON_NOT_TABLES
@with_store_options
def stats(
    store_options: StoreOptions,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Count what there is."""
    from headgate.app.knowledge import document_commands
    from headgate.knowledge.commands.answer_tables import printed_statistics

    with exit_on_store_error(store_options):
        found = run(document_commands.stats(load_store_settings(store_options)))
        print_result(printed_statistics(found, as_json=as_json))


@knowledge.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--what",
    type=click.Choice(_PARTS, case_sensitive=False),
    default="all",
    show_default=True,
    help="Which part.",
)
@click.option("--json", "as_json", is_flag=True, help="With FILE: print the counts as one JSON document.")
@with_store_options
def export(
    store_options: StoreOptions,
    file: Path | None,
    what: "ExportPart",
    as_json: bool,  # noqa: FBT001
) -> None:
    """Write what there is as JSON lines, for other programs.

    To FILE, or without one to standard output. `ingest --graph` reads two of the parts: `imported` is what it
    brought in and nothing else, for a backup; `graph` has also what was found in the documents. `mentions`
    tell from which character of a chunk to which one it speaks of an entity.
    """
    from headgate.app.knowledge import document_commands
    from headgate.knowledge.commands.answer_tables import printed_counts

    path = None if file is None or str(file) == "-" else file
    with exit_on_store_error(store_options, interrupted="interrupted; the export is not complete"):
        counts = run(document_commands.export(load_store_settings(store_options), what, path, sys.stdout))
        if path is not None:
            print_result(printed_counts(counts, as_json=as_json))


@knowledge.command()
@click.argument("name")
@JSON_NOT_TABLES
@with_store_options
def forget(
    store_options: StoreOptions,
    name: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Take documents or a graph out of the store.

    NAME is what `ingest` was given, by its last part: a directory, a file or a graph. It may also be a
    directory or a file below, as in docs/old. The files themselves stay as they are.
    """
    from headgate.app.knowledge import document_commands
    from headgate.knowledge.commands.forget import print_forget_result

    with exit_on_store_error(store_options, interrupted="interrupted; the same command goes on from there"):
        forgotten = run(document_commands.forget(load_store_settings(store_options), name))
        print_result(print_forget_result(forgotten, as_json=as_json))


@knowledge.command()
@TRANSPORT
@HOST
@PORT
@with_store_options
def serve(store_options: StoreOptions, transport: str | None, host: str | None, port: int | None) -> None:
    """Serve the documents alone, without the other servers."""
    from headgate.app.config_reload import log_config_warnings
    from headgate.app.knowledge import document_commands
    from headgate.app.log_setup import set_up_logging
    from headgate.config.loader import load

    flags = store_flags(store_options, transport=transport, host=host, port=port)

    def read() -> "Settings":
        return load(flags, os.environ, Path.cwd(), with_servers=False)

    with exit_on_error(verbose=store_options.verbose):
        settings = read()
        set_up_logging(settings.log_level, settings.log_format, settings.log_file)
        log_config_warnings(settings)
        if settings.transport == "stdio" and sys.stdin.isatty():
            click.echo(f"headgate: {_WAITING}", err=True)
        sys.exit(run(document_commands.serve(settings, read)))
