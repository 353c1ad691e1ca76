"""The command group `headgate knowledge`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.domain.errors import KnowledgeError, StoreUnavailable
from headgate.knowledge.commands.command_options import (
    JSON_NOT_TABLES,
    StoreOptions,
    command_host,
    exit_on_store_error,
    with_store_options,
)
from headgate.knowledge.commands.ingest_commands import ingest, watch

if TYPE_CHECKING:
    from headgate.knowledge.commands.document_commands import ExportPart

T = TypeVar("T")

# The values of `ExportPart`, `ResponseMode` and `SearchStrategy` without their imports, as `--help` has to
# be fast.
_PARTS = ("all", "sources", "chunks", "graph", "mentions", "imported")
_MODES = ("ids_only", "metadata", "preview", "full", "auto")
_STRATEGIES = ("hybrid", "vector", "bm25", "auto")
_MOST = 50
# The options of a query have the names of the tool's arguments.
_LIMIT = click.option(
    "--limit", "page_size", type=click.IntRange(1, _MOST), help="The most results of one answer."
)
_CURSOR = click.option("--cursor", help="Go on where the answer before ended, which told this.")
_FILTERS = {
    "source_category": click.option(
        "--category", "source_category", multiple=True, help="Only of this category."
    ),
    "source_file": click.option(
        "--file", "source_file", multiple=True, help="Only of this file; a * stands for anything."
    ),
    "doc_type": click.option(
        "--type",
        "doc_type",
        multiple=True,
        help="Only of this kind of document: markdown, text, html, pdf, docx, csv, json, or what its front "
        "matter calls it.",
    ),
    "date_from": click.option(
        "--since", "date_from", metavar="DAY", help="Only of this day (YYYY-MM-DD) or later."
    ),
    "date_to": click.option("--until", "date_to", metavar="DAY", help="Only of this day or earlier."),
}


def _filtered(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_FILTERS.values()):
        command = option(command)
    return command


def _mode(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--mode",
        "response_mode",
        type=click.Choice(_MODES, case_sensitive=False),
        default=default,
        show_default=True,
        help="How much is shown of each result.",
    )


class _ChunkId(click.IntRange):
    """A whole number from 1 on, with a clearer message than click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value!r} is no id of a chunk: a whole number from 1 on, as searches tell.", param, ctx
            )


@click.group()
def knowledge() -> None:
    """Ingest the team's own documents, and search them."""


knowledge.add_command(ingest)
knowledge.add_command(watch)


@knowledge.command()
@click.argument("query")
@_mode("preview")
@click.option(
    "--strategy",
    type=click.Choice(_STRATEGIES, case_sensitive=False),
    help="By meaning, by words, or both (hybrid, the usual one); auto lets the query decide.",
)
@_LIMIT
@_CURSOR
@click.option("--min-score", type=click.FloatRange(0, 1), help="Only with this score or more.")
@click.option("--boosts/--no-boosts", default=None, help="Whether vendors, dates and headings count too.")
@click.option("--explain", is_flag=True, help="Tell where each score comes from.")
@_filtered
@JSON_NOT_TABLES
@with_store_options
def search(store_options: StoreOptions, *, as_json: bool, **arguments: Any) -> None:
    """Search the documents for QUERY.

    "Words in quotes" have to stand there as they are. --category, --file and --type may be given several
    times; then any of them fits.
    """
    _print_answer(store_options, "semantic_search", arguments, as_json=as_json)


@knowledge.command()
@click.argument("vendor_name", metavar="NAME")
@_mode("preview")
@_LIMIT
@_CURSOR
@click.option("--no-relationships", is_flag=True, help="Leave out how they are related.")
@JSON_NOT_TABLES
@with_store_options
def vendor(store_options: StoreOptions, *, no_relationships: bool, as_json: bool, **arguments: Any) -> None:
    """Tell what is known of a vendor.

    NAME may be an alias or an id, in any case.
    """
    arguments["include_relationships"] = not no_relationships
    _print_answer(store_options, "find_vendor_info", arguments, as_json=as_json)


@knowledge.command()
@click.argument("chunk_ids", nargs=-1, required=True, metavar="ID...", type=_ChunkId(min=1))
@_mode("full")
@JSON_NOT_TABLES
@with_store_options
def chunk(store_options: StoreOptions, *, as_json: bool, **arguments: Any) -> None:
    """Print passages whose ids a search told.

    The exit code is 1 if one of them is not there.
    """
    answer = _print_answer(store_options, "get_chunks", arguments, as_json=as_json)
    if answer["missing"]:
        missing = ", ".join(map(str, answer["missing"]))
        click.echo(f"headgate: removed or never there: {missing}; search again for its id", err=True)
        sys.exit(1)


@knowledge.command()
@_filtered
@_LIMIT
@_CURSOR
@JSON_NOT_TABLES
@with_store_options
def sources(store_options: StoreOptions, *, as_json: bool, **arguments: Any) -> None:
    """Name the documents that can be searched.

    --category, --file and --type may be given several times; then any of them fits.
    """
    arguments["page_size"] = arguments["page_size"] or _MOST
    _print_answer(store_options, "list_sources", arguments, as_json=as_json)


def _print_answer(
    store_options: StoreOptions, tool: str, arguments: dict[str, Any], *, as_json: bool
) -> dict[str, Any]:
    """Print what a tool answers; what it warns of goes to standard error."""
    from headgate.knowledge.commands.answer_tables import PRINTERS, in_command_terms, warning_lines
    from headgate.knowledge.commands.document_commands import call_tool

    given = {name: value for name, value in arguments.items() if value not in (None, ())}
    if filters := {name: given.pop(name) for name in _FILTERS if name in given}:
        given["filters"] = filters
    host = command_host()
    with exit_on_store_error(store_options):
        try:
            answer = host.run(call_tool(host.load_options(store_options), tool, given))
        except StoreUnavailable:
            raise
        except KnowledgeError as error:
            sentence, hint = in_command_terms(error.message), in_command_terms(error.hint)
            raise KnowledgeError(sentence, hint=hint, hinted=error.hinted) from error
        for line in () if as_json else warning_lines(answer):
            click.echo(f"headgate: {in_command_terms(line)}", err=True)
        _print(answer, PRINTERS[tool], as_json=as_json)
    return answer


def _print(value: T, printed: Callable[[T], str], *, as_json: bool) -> None:
    from headgate.knowledge.commands.answer_tables import json_document

    command_host().print_result(json_document(value) if as_json else printed(value))


@knowledge.command()
@JSON_NOT_TABLES
@with_store_options
def stats(store_options: StoreOptions, *, as_json: bool) -> None:
    """Count what there is."""
    from headgate.knowledge.commands import answer_tables, document_commands

    host = command_host()
    with exit_on_store_error(store_options):
        options = host.load_options(store_options)
        found = host.run(document_commands.use_store(options, lambda store: store.statistics()))
        _print(found, answer_tables.printed_statistics, as_json=as_json)


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
def export(store_options: StoreOptions, *, file: Path | None, what: "ExportPart", as_json: bool) -> None:
    """Write what there is as JSON lines, for other programs.

    To FILE, or without one to standard output. `ingest --graph` reads two of the parts: `imported` is what it
    brought in and nothing else, for a backup; `graph` has also what was found in the documents. `mentions`
    tell from which character of a chunk to which one it speaks of an entity.
    """
    from headgate.knowledge.commands import answer_tables, document_commands

    host = command_host()
    path = None if file is None or str(file) == "-" else file
    with exit_on_store_error(store_options, interrupted="interrupted; the export is not complete"):
        options = host.load_options(store_options)
        write = partial(document_commands.export_store, what=what, path=path, stream=sys.stdout)
        counts = host.run(document_commands.use_store(options, write))
        if path is not None:
            _print(counts, answer_tables.printed_counts, as_json=as_json)


@knowledge.command()
@click.argument("name")
@JSON_NOT_TABLES
@with_store_options
def forget(store_options: StoreOptions, *, name: str, as_json: bool) -> None:
    """Take documents or a graph out of the store.

    NAME is what `ingest` was given, by its last part: a directory, a file or a graph. It may also be a
    directory or a file below, as in docs/old. The files themselves stay as they are.
    """
    from headgate.knowledge.commands import document_commands

    host = command_host()
    with exit_on_store_error(store_options, interrupted="interrupted; the same command goes on from there"):
        options = host.load_options(store_options)
        remove = partial(document_commands.remove_by_name, name=name)
        forgotten = host.run(document_commands.use_store(options, remove))
        _print(forgotten, document_commands.print_forget_result, as_json=as_json)


@knowledge.command()
@click.option("--transport", help="How clients come in: stdio, http or sse.")
@click.option("--host", help="The address to listen on; only loopback without authentication.")
@click.option("--port", type=int, help="The port to listen on; 0 takes a free one.")
@with_store_options
def serve(store_options: StoreOptions, transport: str | None, host: str | None, port: int | None) -> None:
    """Serve the documents alone, without the other servers."""
    with command_host().exit_on_error(verbose=store_options.verbose):
        command_host().serve(store_options, transport=transport, host=host, port=port)
