"""The commands `headgate knowledge search`, `vendor`, `chunk` and `sources`."""

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from headgate.domain.errors import KnowledgeError, StoreUnavailable
from headgate.knowledge.commands.command_options import (
    JSON_NOT_TABLES,
    StoreOptions,
    command_host,
    exit_on_store_error,
    with_store_options,
)

# The options for the arguments of the tools.
_OPTIONS: Final = {
    "source_category": "--category",
    "source_file": "--file",
    "doc_type": "--type",
    "date_from": "--since",
    "date_to": "--until",
    "min_score": "--min-score",
    "cursor": "--cursor",
    "vendor_name": "NAME",
    "chunk_ids": "ID...",
}
# The argument that a sentence begins with.
_FIRST: Final = re.compile(r"^(?:filters\.)?([a-z_]+)")
# A quotation; an apostrophe inside a word neither begins nor ends one.
_QUOTED: Final = re.compile(
    r"""(?<!\w)(?:'(?:[^'\\]|\\.|(?<=\w)'(?=\w))*'|"(?:[^"\\]|\\.)*")(?!\w)""", re.DOTALL
)
# Further on only what surely is meant so.
_PHRASES: Final = tuple(
    (re.compile(tools), commands)
    for tools, commands in (
        (r"\b(?:using )?semantic_search\b", "headgate knowledge search"),
        (r"\blist_sources\b", "headgate knowledge sources"),
        (r"\bfind_vendor_info\b", "headgate knowledge vendor"),
        # There is no server either.
        (r"\bthis server gave\b", "an answer ended with"),
        # There is no command for it.
        (r": use neighbours\b", ""),
        (r"\bas vendor_name\b", "as NAME"),
        (r"\bwith the cursor\b", "with its --cursor"),
        (r"\bresponse_mode '?(\w+)'?", r"--mode \1"),
        (r"\bpage_size (?=\d)", "--limit "),
        (r"\bstrategy '(\w+)' or '(\w+)'", r"--strategy \1 or \2"),
        (r"\bstrategy '(\w+)'", r"--strategy \1"),
        (r"\ba strategy (?=other)", "a --strategy "),
        (r"(?<=No document has )source_category", "the category"),
        (r"(?<=No document has )doc_type", "the type"),
        (r"(?<=No document has )source_file", "the file name"),
        *((rf"\b{name} (?=['\d]|up to)", f"{option} ") for name, option in _OPTIONS.items()),
    )
)


def in_command_terms(sentence: str) -> str:
    """A message of a tool with the names of commands and options in place of tools and arguments.

    What it quotes stays as it is.
    """
    sentence = _FIRST.sub(lambda found: _OPTIONS.get(found[1], found[0]), sentence)
    for tools, commands in _PHRASES:
        sentence = _outside_quotes(tools, commands, sentence)
    return sentence


def _outside_quotes(tools: re.Pattern[str], commands: str, sentence: str) -> str:
    quoted = [found.span() for found in _QUOTED.finditer(sentence)]

    def replaced(found: re.Match[str]) -> str:
        inside = any(start < found.start() < end for start, end in quoted)
        return found[0] if inside else found.expand(commands)

    return tools.sub(replaced, sentence)


# The words of `Mode` and `Strategy`, without what would have to be imported for them.
_MODES = ("ids_only", "metadata", "preview", "full", "auto")
_STRATEGIES = ("hybrid", "vector", "bm25", "auto")
_MOST = 50


def _mode(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--mode",
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


_LIMIT = click.option("--limit", type=click.IntRange(1, _MOST), help="The most results of one answer.")
_CURSOR = click.option("--cursor", help="Go on where the answer before ended, which told this.")


def _filtered(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that choose documents; it gets them as `filters`."""

    @click.option("--category", "categories", multiple=True, help="Only of this category.")
    @click.option("--file", "files", multiple=True, help="Only of this file; a * stands for anything.")
    @click.option(
        "--type",
        "types",
        multiple=True,
        help="Only of this kind of document: markdown, text, html, pdf, docx, csv, json, or what its front "
        "matter calls it.",
    )
    @click.option("--since", metavar="DAY", help="Only of this day (YYYY-MM-DD) or later.")
    @click.option("--until", metavar="DAY", help="Only of this day or earlier.")
    @wraps(command)
    def of_filters(
        *args: Any,
        categories: tuple[str, ...],
        files: tuple[str, ...],
        types: tuple[str, ...],
        since: str | None,
        until: str | None,
        **rest: Any,
    ) -> None:
        filters = _without_unset(
            source_category=list(categories),
            source_file=list(files),
            doc_type=list(types),
            date_from=since,
            date_to=until,
        )
        command(*args, filters=filters, **rest)

    return of_filters


@click.command()
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
def search(  # noqa: PLR0913 (one for each option)
    store_options: StoreOptions,
    query: str,
    mode: str,
    strategy: str | None,
    limit: int | None,
    cursor: str | None,
    filters: dict[str, Any],
    min_score: float | None,
    boosts: bool | None,  # noqa: FBT001
    explain: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Search the documents for QUERY.

    "Words in quotes" have to stand there as they are. --category, --file and --type may be given several
    times; then any of them fits.
    """
    from headgate.knowledge.commands.answer_tables import printed_search

    arguments = _without_unset(
        response_mode=mode,
        strategy=strategy,
        page_size=limit,
        cursor=cursor,
        filters=filters,
        min_score=min_score,
        boosts=boosts,
        explain=explain or None,
    )
    _print_answer(
        store_options, "semantic_search", {"query": query, **arguments}, printed_search, as_json=as_json
    )


@click.command()
@click.argument("name")
@_mode("preview")
@_LIMIT
@_CURSOR
@click.option("--no-relationships", is_flag=True, help="Leave out how they are related.")
@JSON_NOT_TABLES
@with_store_options
def vendor(
    store_options: StoreOptions,
    name: str,
    mode: str,
    limit: int | None,
    cursor: str | None,
    no_relationships: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Tell what is known of a vendor.

    NAME may be an alias or an id, in any case.
    """
    from headgate.knowledge.commands.answer_tables import printed_vendor

    arguments = _without_unset(
        response_mode=mode,
        page_size=limit,
        cursor=cursor,
        include_relationships=False if no_relationships else None,
    )
    _print_answer(
        store_options, "find_vendor_info", {"vendor_name": name, **arguments}, printed_vendor, as_json=as_json
    )


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", type=_ChunkId(min=1))
@_mode("full")
@JSON_NOT_TABLES
@with_store_options
def chunk(
    store_options: StoreOptions,
    ids: tuple[int, ...],
    mode: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Print passages whose ids a search told.

    The exit code is 1 if one of them is not there.
    """
    from headgate.knowledge.commands.answer_tables import printed_chunks

    arguments = {"chunk_ids": list(ids), "response_mode": mode}
    answer = _print_answer(store_options, "get_chunks", arguments, printed_chunks, as_json=as_json)
    if answer["missing"]:
        missing = ", ".join(map(str, answer["missing"]))
        click.echo(f"headgate: removed or never there: {missing}; search again for its id", err=True)
        sys.exit(1)


@click.command()
@_filtered
@_LIMIT
@_CURSOR
@JSON_NOT_TABLES
@with_store_options
def sources(
    store_options: StoreOptions,
    filters: dict[str, Any],
    limit: int | None,
    cursor: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Name the documents that can be searched.

    --category, --file and --type may be given several times; then any of them fits.
    """
    from headgate.knowledge.commands.answer_tables import printed_sources

    arguments = _without_unset(filters=filters, page_size=limit or _MOST, cursor=cursor)
    _print_answer(store_options, "list_sources", arguments, printed_sources, as_json=as_json)


def _without_unset(**values: Any) -> dict[str, Any]:
    """The arguments that are set."""
    return {name: value for name, value in values.items() if value is not None and value not in ([], {})}


def _print_answer(
    store_options: StoreOptions,
    tool: str,
    arguments: dict[str, Any],
    printed: Callable[..., str],
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Print what a tool answers; what it warns of goes to standard error."""
    from headgate.knowledge.commands import document_commands
    from headgate.knowledge.commands.answer_tables import warning_lines

    host = command_host()
    with exit_on_store_error(store_options):
        try:
            answer = host.run(document_commands.call_tool(host.load_options(store_options), tool, arguments))
        except StoreUnavailable:
            raise
        except KnowledgeError as error:
            sentence, hint = in_command_terms(error.message), in_command_terms(error.hint)
            raise KnowledgeError(sentence, hint=hint, hinted=error.hinted) from error
        for line in () if as_json else warning_lines(answer):
            click.echo(f"headgate: {in_command_terms(line)}", err=True)
        host.print_result(printed(answer, as_json=as_json))
    return answer
