"""`headgate knowledge ingest` and `watch`: documents and graphs into the store."""

import sys
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.command_runner import print_result, run_until_interrupted
from headgate.cli.knowledge_options import (
    StoreOptions,
    exit_on_store_error,
    load_store_settings,
    with_store_options,
)
from headgate.cli.options import JSON_NOT_TABLES

if TYPE_CHECKING:
    from headgate.app.knowledge.ingest_command import IngestOptions
    from headgate.app.knowledge.ingestion_report import IngestionReport

INTERRUPTED = "interrupted; what was ingested so far is kept, and the same command goes on from there"
_STOPPED = "stopped; what was ingested is kept"


class _NonEmptyPath(click.Path):
    """A path that is not empty: one from a variable that is not set would be the whole directory here."""

    def __init__(self, empty: str) -> None:
        """`empty` says what to name instead."""
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
    """The command with what says which documents and graphs are meant; it gets them as `wish`."""

    @_PATHS
    @_GRAPH
    @_CATEGORY
    @_EXCLUDE
    @_MOVED
    @_EMPTIED
    @wraps(command)
    def of_wish(
        *,
        paths: tuple[Path, ...],
        graphs: tuple[Path, ...],
        category: str | None,
        exclude: tuple[str, ...],
        moved: bool,
        emptied: bool,
        **rest: Any,
    ) -> None:
        if not paths and not graphs:
            raise click.UsageError("Name a PATH to ingest, or a --graph FILE to import.")
        from headgate.app.knowledge.ingest_command import IngestOptions

        wish = IngestOptions(
            paths=paths,
            graphs=graphs,
            category=category or "",
            exclude=exclude,
            moved=moved,
            emptied=emptied,
        )
        command(wish=wish, **rest)

    return of_wish


@click.command()
@_with_ingest_options
@click.option("--strict", is_flag=True, help="End with exit code 1 if any file could not be read.")
@JSON_NOT_TABLES
@with_store_options
def ingest(
    store_options: StoreOptions,
    wish: "IngestOptions",
    strict: bool,  # noqa: FBT001 (the shape that click wants)
    as_json: bool,  # noqa: FBT001
) -> None:
    """Read documents from files and directories.

    Markdown, text, HTML, PDF, DOCX, CSV and JSON. What has not changed is not read again, and what is gone
    from a directory leaves. It can be interrupted at any time; the same command goes on from there. A PATH
    inside of one that was ingested before brings that part of it up to date.

    A file that cannot be read is named, and the others go on; the exit code is 1 if there was no other.
    """
    from headgate.app.knowledge import ingest_command
    from headgate.app.knowledge.ingestion_report import printed_summary

    with exit_on_store_error(store_options, interrupted=INTERRUPTED):
        work = ingest_command.ingest(load_store_settings(store_options), wish, sys.stderr)
        ingested = run_until_interrupted(work, INTERRUPTED)
        print_result(printed_summary(ingested, as_json=as_json))
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
def watch(
    store_options: StoreOptions,
    wish: "IngestOptions",
    interval: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Ingest, and follow what changes until Ctrl-C or SIGTERM.

    Everything is as with `ingest`, and the options are those of this command alone.
    """
    from headgate.app.knowledge import ingest_command
    from headgate.app.knowledge.ingestion_report import IngestionNews

    # Of the clock on the wall, which whoever watches has too.
    news = IngestionNews(lambda: datetime.now().astimezone())
    with exit_on_store_error(store_options, interrupted=_STOPPED) as store_log_released:

        def tell(ingested: "IngestionReport") -> None:
            # From now on a store that is away does not end it.
            store_log_released()
            print_result(news.render(ingested, as_json=as_json))

        work = ingest_command.watch(
            load_store_settings(store_options),
            wish,
            sys.stderr,
            interval_seconds=interval,
            tell=tell,
        )
        run_until_interrupted(work, _STOPPED)
