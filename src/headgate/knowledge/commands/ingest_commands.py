"""The commands `headgate knowledge ingest` and `watch`."""

import sys
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.knowledge.commands.command_options import (
    JSON_NOT_TABLES,
    StoreOptions,
    command_host,
    exit_on_store_error,
    with_store_options,
)

if TYPE_CHECKING:
    from headgate.knowledge.commands.ingest_runner import IngestOptions
    from headgate.knowledge.commands.ingestion_report import IngestionReport

INTERRUPTED = "interrupted; what was ingested so far is kept, and the same command goes on from there"
_STOPPED = "stopped; what was ingested is kept"


class _NonEmptyPath(click.Path):
    """A path that is not empty: the value of an unset shell variable would be the current directory."""

    def __init__(self, empty: str) -> None:
        """`empty` is the message for an empty value."""
        super().__init__(path_type=Path)
        self._empty = empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(self._empty, param, ctx)
        return super().convert(value, param, ctx)


_PATHS = click.argument(
    "paths",
    nargs=-1,
    metavar="PATH...",
    type=_NonEmptyPath("A PATH is empty; name a file or a directory, such as . for this one."),
)
_GRAPH = click.option(
    "--graph",
    "graphs",
    multiple=True,
    type=_NonEmptyPath("It is empty; name a JSONL or CSV file."),
    metavar="FILE",
    help="Import entities or relationships from this JSONL or CSV; several may be named. A CSV has the "
    "columns name,type and maybe id,aliases,confidence, or source,target,type and maybe confidence.",
)
_CATEGORY = click.option(
    "--category",
    metavar="NAME",
    help="The category of documents that name none. It is not remembered: without it, the next time they "
    "have that of their directory.",
)
_EXCLUDE = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out what fits, as in a .gitignore; several may be named. What was ingested before and fits "
    "leaves. It is not remembered: without it, the next time it is there again.",
)
_MOVED = click.option(
    "--moved", is_flag=True, help="A PATH whose name is known is the same one at a new place."
)
_EMPTIED = click.option(
    "--emptied",
    is_flag=True,
    help="A PATH without any document is meant to have none: those that it had leave. Otherwise they stay, "
    "because it may be a disk that is not there now.",
)


def _with_ingest_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name documents and graphs; the command gets them as `options`."""

    @_PATHS
    @_GRAPH
    @_CATEGORY
    @_EXCLUDE
    @_MOVED
    @_EMPTIED
    @wraps(command)
    def command_with_options(
        *args: Any, paths: tuple[Path, ...], graphs: tuple[Path, ...], category: str | None, **rest: Any
    ) -> None:
        if not paths and not graphs:
            raise click.UsageError("Name a PATH to ingest, or a --graph FILE to import.")
        from headgate.knowledge.commands.ingest_runner import IngestOptions

        others = {name: rest.pop(name) for name in ("exclude", "moved", "emptied")}
        options = IngestOptions(paths=paths, graphs=graphs, category=category or "", **others)
        command(*args, options=options, **rest)

    return command_with_options


@click.command()
@_with_ingest_options
@click.option("--strict", is_flag=True, help="End with exit code 1 if any file could not be read.")
@JSON_NOT_TABLES
@with_store_options
def ingest(store_options: StoreOptions, *, options: "IngestOptions", strict: bool, as_json: bool) -> None:
    """Read documents from files and directories.

    Markdown, text, HTML, PDF, DOCX, CSV and JSON. What has not changed is not read again, and what is gone
    from a directory leaves. It can be interrupted at any time; the same command goes on from there. A PATH
    inside of one that was ingested before brings that part of it up to date.

    A file that cannot be read is named, and the others go on; the exit code is 1 if there was no other.
    """
    from headgate.knowledge.commands import ingest_runner
    from headgate.knowledge.commands.ingestion_report import printed_summary

    host = command_host()
    with exit_on_store_error(store_options, interrupted=INTERRUPTED):
        work = ingest_runner.ingest(host.load_options(store_options), options, sys.stderr)
        ingested = host.run_until_interrupted(work, INTERRUPTED)
        host.print_result(printed_summary(ingested, as_json=as_json))
    if ingested.all_failed or (strict and ingested.failed):
        sys.exit(1)


@click.command()
@_with_ingest_options
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks at the files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line instead of tables.")
@with_store_options
def watch(store_options: StoreOptions, *, options: "IngestOptions", interval: float, as_json: bool) -> None:
    """Ingest, and follow what changes until Ctrl-C or SIGTERM.

    Everything is as with `ingest`, and the options are those of this command alone.
    """
    from headgate.knowledge.commands import ingest_runner
    from headgate.knowledge.commands.ingestion_report import IngestionNews

    host = command_host()
    # In local time, as the clock of the operator shows it.
    news = IngestionNews(lambda: datetime.now().astimezone())
    with exit_on_store_error(store_options, interrupted=_STOPPED) as release_store_log:

        def report(ingested: "IngestionReport") -> None:
            # From now on an unavailable store is only logged.
            release_store_log()
            host.print_result(news.render(ingested, as_json=as_json))

        loaded = host.load_options(store_options)
        work = ingest_runner.watch(loaded, options, sys.stderr, interval_seconds=interval, report=report)
        host.run_until_interrupted(work, _STOPPED)
