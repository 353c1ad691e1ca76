"""The command group `headgate knowledge`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.knowledge.commands.command_options import (
    JSON_NOT_TABLES,
    StoreOptions,
    command_host,
    exit_on_store_error,
    with_store_options,
)
from headgate.knowledge.commands.ingest_commands import ingest, watch
from headgate.knowledge.commands.query_commands import chunk, search, sources, vendor

if TYPE_CHECKING:
    from headgate.knowledge.commands.export import ExportPart

# The values of `ExportPart`, without its imports: `--help` has to be fast.
_PARTS = ("all", "sources", "chunks", "graph", "mentions", "imported")


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
    from headgate.knowledge.commands import document_commands
    from headgate.knowledge.commands.answer_tables import printed_statistics

    host = command_host()
    with exit_on_store_error(store_options):
        found = host.run(document_commands.stats(host.load_options(store_options)))
        host.print_result(printed_statistics(found, as_json=as_json))


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
    from headgate.knowledge.commands import document_commands
    from headgate.knowledge.commands.answer_tables import printed_counts

    host = command_host()
    path = None if file is None or str(file) == "-" else file
    with exit_on_store_error(store_options, interrupted="interrupted; the export is not complete"):
        counts = host.run(document_commands.export(host.load_options(store_options), what, path, sys.stdout))
        if path is not None:
            host.print_result(printed_counts(counts, as_json=as_json))


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
    from headgate.knowledge.commands import document_commands
    from headgate.knowledge.commands.document_commands import print_forget_result

    host = command_host()
    with exit_on_store_error(store_options, interrupted="interrupted; the same command goes on from there"):
        forgotten = host.run(document_commands.forget(host.load_options(store_options), name))
        host.print_result(print_forget_result(forgotten, as_json=as_json))


@knowledge.command()
@click.option("--transport", help="How clients come in: stdio, http or sse.")
@click.option("--host", help="The address to listen on; only loopback without authentication.")
@click.option("--port", type=int, help="The port to listen on; 0 takes a free one.")
@with_store_options
def serve(store_options: StoreOptions, transport: str | None, host: str | None, port: int | None) -> None:
    """Serve the documents alone, without the other servers."""
    with command_host().exit_on_error(verbose=store_options.verbose):
        command_host().serve(store_options, transport=transport, host=host, port=port)
