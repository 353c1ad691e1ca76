"""`headgate knowledge ingest` and `watch`: documents and graphs into the store."""

import sys
from datetime import datetime
from pathlib import Path

import click

from headgate.cli.options import JSON_NOT_TABLES
from headgate.cli.place import Place, placed, settings_at
from headgate.cli.running import ending, run

INTERRUPTED = "interrupted; what was ingested so far is kept, and the same command goes on from there"
_STOPPED = "stopped; what was ingested is kept"

_PATHS = click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path))
_GRAPH = click.option(
    "--graph",
    "graphs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Import entities or relationships from this JSONL or CSV; several may be named. A CSV has the "
    "columns name,type and maybe id,aliases,confidence, or source,target,type and maybe confidence.",
)
_CATEGORY = click.option("--category", metavar="NAME", help="The category of documents that name none.")
_EXCLUDE = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out what fits, as in a .gitignore; several may be named.",
)
_MOVED = click.option(
    "--moved", is_flag=True, help="A PATH whose name is known is the same one at a new place."
)

_STRICT = click.option("--strict", is_flag=True, help="End with exit code 1 if any file could not be read.")


@click.command()
@_PATHS
@_GRAPH
@_CATEGORY
@_EXCLUDE
@_MOVED
@_STRICT
@JSON_NOT_TABLES
@placed
def ingest(
    place: Place,
    paths: tuple[Path, ...],
    graphs: tuple[Path, ...],
    category: str | None,
    exclude: tuple[str, ...],
    moved: bool,  # noqa: FBT001 (the shape that click wants)
    strict: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Read documents from files and directories.

    Markdown, text, HTML, PDF, DOCX, CSV and JSON. What has not changed is not read again, and what is gone
    from a directory leaves. It can be interrupted at any time; the same command goes on from there.

    A file that cannot be read is named, and the others go on; the exit code is 1 if there was no other.
    """
    _check_paths(paths, graphs)
    from headgate.app.knowledge import ingesting
    from headgate.app.knowledge.summary import printed_summary

    wish = ingesting.Wish(paths=paths, graphs=graphs, category=category or "", exclude=exclude, moved=moved)
    with ending(verbose=place.verbose, interrupted=INTERRUPTED):
        ingested = run(ingesting.ingest(settings_at(place), wish, sys.stderr))
        click.echo(printed_summary(ingested, as_json=as_json))
    if ingested.all_failed or (strict and ingested.failed):
        sys.exit(1)


@click.command()
@_PATHS
@_GRAPH
@_CATEGORY
@_EXCLUDE
@_MOVED
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks at the files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line instead of tables.")
@placed
def watch(
    place: Place,
    paths: tuple[Path, ...],
    graphs: tuple[Path, ...],
    category: str | None,
    exclude: tuple[str, ...],
    moved: bool,  # noqa: FBT001
    interval: float,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Ingest, and follow what changes until Ctrl-C."""
    _check_paths(paths, graphs)
    from headgate.app.knowledge import ingesting
    from headgate.app.knowledge.summary import News

    wish = ingesting.Wish(paths=paths, graphs=graphs, category=category or "", exclude=exclude, moved=moved)
    # Of the clock on the wall, which whoever watches has too.
    news = News(lambda: datetime.now().astimezone())
    with ending(verbose=place.verbose, interrupted=_STOPPED):
        run(
            ingesting.watch(
                settings_at(place),
                wish,
                sys.stderr,
                interval_seconds=interval,
                tell=lambda ingested: click.echo(news.told(ingested, as_json=as_json)),
            )
        )


def _check_paths(paths: tuple[Path, ...], graphs: tuple[Path, ...]) -> None:
    if not paths and not graphs:
        raise click.UsageError("Name a PATH to ingest, or a --graph FILE to import.")
