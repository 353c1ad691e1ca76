"""Tool answers and store statistics as text for a terminal, in the words of the commands."""

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.domain.terminal import display_width, printable, table_lines, wrap_text
from headgate.knowledge.data_model import StoreStatistics
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH

_USUAL_WIDTH: Final = 100
_GAP: Final = "  "
_INDENT: Final = "   "
_BELOW: Final = "      "
_DEEPER: Final = "        "
# A terminal that is narrower breaks the lines itself.
_NARROWEST: Final = 20
# The width of a line that must not be cut.
_WIDEST: Final = 100_000
_CHUNK: Final = {"chunk": "chunk_id"}
_RANKED: Final = {"rank": "rank", "score": "hybrid_score", **_CHUNK}
_SOURCE: Final = {
    "category": "source_category",
    "type": "doc_type",
    "date": "date",
    "chunks": "total_chunks",
    "file": "source_file",
}


def json_document(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def counted_noun(count: int, one: str, several: str = "") -> str:
    """A number of things, each of which is called so."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def text_width() -> int:
    return shutil.get_terminal_size((_USUAL_WIDTH, 0)).columns


def line_width() -> int:
    """The width of a line; only a terminal limits it."""
    return shutil.get_terminal_size((_WIDEST, 0)).columns


def warning_lines(answer: Mapping[str, Any]) -> list[str]:
    """The warnings of an answer, one line each."""
    return [
        printable(
            f"{one['message'].removesuffix('.')}; {one['suggestion'][:1].lower()}{one['suggestion'][1:]}"
        )
        for one in answer.get("warnings", ())
    ]


def printed_search(answer: Mapping[str, Any]) -> str:
    """The chunks that were found: a table or, where there is some of their text, one after the other."""
    results = answer["results"]
    if not results:
        return "Nothing was found."
    lines = _chunk_lines(results, _RANKED)
    total = answer["total_found"]
    # A list that is as deep as lists go ends where it was cut.
    found = f"of the best {total:,}" if total >= RESULT_DEPTH else f"of {total:,} found"
    how = f"{answer['strategy_used']}, {answer['execution_time_ms']:.0f} ms"
    last = f"{len(results)} {found} ({how}){_more(answer)}"
    return "\n".join(["\n".join(lines).rstrip(), *_explained(results), "", last])


def printed_chunks(answer: Mapping[str, Any]) -> str:
    """Chunks by their ids, one after the other, or as a table when they have no text."""
    chunks = answer["results"]
    return "\n".join(_chunk_lines(chunks, _CHUNK)).rstrip() if chunks else "Nothing is there."


def _chunk_lines(chunks: Sequence[Mapping[str, Any]], first: Mapping[str, str]) -> Iterable[str]:
    if "chunk_text" in chunks[0]:
        return _blocks(chunks)
    if "chunk_snippet" in chunks[0]:
        return _preview_lines(chunks, first)
    columns = dict(first)
    if "source_file" in chunks[0]:
        chunks = [{**chunk, "part": _place(chunk)} for chunk in chunks]
        columns |= {"part": "part", "category": "source_category", "file": "source_file"}
    return _with_files(list(columns), [[_cell(chunk[key]) for key in columns.values()] for chunk in chunks])


def _blocks(chunks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for chunk in chunks:
        place, header = f"chunk {chunk['chunk_id']}, part {_place(chunk)}", printable(chunk["context_header"])
        if "rank" in chunk:
            yield f"{chunk['rank']}. {header}"
            yield f"{_INDENT}{place}, score {_cell(chunk['hybrid_score'])}"
        else:
            yield f"{place}: {header}"
        yield ""
        yield from (f"{_INDENT}{printable(line)}".rstrip() for line in chunk["chunk_text"].splitlines())
        yield ""


def _preview_lines(results: Sequence[Mapping[str, Any]], first: Mapping[str, str]) -> Iterator[str]:
    """For each chunk a line with its location, and below it its beginning."""
    columns = {**first, "where": "context_header"}
    rows = [[_cell(result[key]) for key in columns.values()] for result in results]
    # The location has a line of its own, so that no path is broken.
    head, *begins = table_lines(list(columns)[:-1], [row[:-1] for row in rows], _WIDEST)
    yield f"{head}{_GAP}where"
    for begin, result, row in zip(begins, results, rows, strict=True):
        yield from _whole_words(f"{begin}{_GAP}", printable(row[-1]))
        snippet = wrap_text(printable(result["chunk_snippet"]), max(_NARROWEST, text_width() - len(_DEEPER)))
        yield from (f"{_DEEPER}{line}" for line in snippet)
        yield ""


def _whole_words(begin: str, text: str) -> list[str]:
    """The text after its begin, in lines that are broken between words alone."""
    longest = max(map(display_width, text.split()), default=0)
    beside = longest <= line_width() - len(begin)
    indent = " " * len(begin) if beside else _BELOW
    lines = textwrap.wrap(
        text,
        line_width(),
        initial_indent=begin if beside else indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines if beside and lines else [begin.rstrip(), *lines]


def _with_files(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose last column has paths; they are neither cut nor broken, rather each gets its own line."""
    table = table_lines(head, rows, _WIDEST)
    if max(map(display_width, table)) <= line_width():
        return table
    begins = table_lines(head[:-1], [row[:-1] for row in rows], _WIDEST)
    paths = [printable(row[-1]) for row in (head, *rows)]
    return [
        line for pair in zip(begins, (f"{_DEEPER}{path}" for path in paths), strict=True) for line in pair
    ]


def _place(chunk: Mapping[str, Any]) -> str:
    """Which one of its document's chunks it is."""
    return f"{chunk['chunk_index'] + 1:,} of {chunk['total_chunks']:,}"


def _explained(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The explanations of the scores, if requested."""
    if not results[0].get("explanation"):
        return []
    head = ("rank", "by meaning", "by words", "fused", "score", "boosts")
    rows = []
    for result in results:
        explanation = result["explanation"]
        boosts = ", ".join(f"{name} +{share:.0%}" for name, share in explanation["boosts"].items())
        lists = [_contribution(explanation["vector"]), _contribution(explanation["bm25"])]
        scores = [_cell(explanation["fused"]), _cell(explanation["score"])]
        rows.append([_cell(result["rank"]), *lists, *scores, boosts or "-"])
    table = table_lines(head, rows, _WIDEST)
    if max(map(display_width, table)) <= line_width():
        return ["", *table]
    # Too wide for the terminal: a line for each value, and a block for each row.
    longest, lines = max(map(len, head[1:])), [""]
    for row in rows:
        lines.append(f"{_GAP}{head[0]} {row[0]}")
        for name, value in zip(head[1:], row[1:], strict=True):
            lines += _whole_words(f"{_GAP}{_GAP}{name:<{longest}}{_GAP}", value)
    return lines


def _contribution(given: Mapping[str, Any] | None) -> str:
    if given is None:
        return "-"
    score = given.get("similarity", given.get("score"))
    return f"rank {given['rank']}, {_cell(score)}: {_cell(given['contribution'])}"


def _more(answer: Mapping[str, Any]) -> str:
    page = answer["pagination"]
    return f"; more with --cursor {page['cursor']}" if page["has_more"] else ""


def printed_sources(answer: Mapping[str, Any]) -> str:
    if not answer["sources"]:
        return "There is no such document."
    rows = [[_cell(source[key]) for key in _SOURCE.values()] for source in answer["sources"]]
    found = f"{len(rows)} of {counted_noun(answer['total_found'], 'document')}"
    return "\n".join([*_with_files(list(_SOURCE), rows), "", f"{found}{_more(answer)}"])


def printed_vendor(answer: Mapping[str, Any]) -> str:
    """A vendor: its facts, then tables of entities and relationships."""
    lines = [f"{printable(answer['vendor_name'])} (id {answer['vendor_id']})"]
    statistics = answer.get("statistics", {})
    facts = {
        "type": answer.get("vendor_type"),
        "own id": answer.get("external_id"),
        "aliases": ", ".join(answer.get("aliases", ())),
        "attributes": _attributes(answer),
        "in chunks": ", ".join(map(str, answer.get("mentioned_in", ()))),
        "entities": _distribution(statistics, "entity"),
        "relationships": _distribution(statistics, "relationship"),
        "updated": answer.get("last_updated"),
        "entity ids": ", ".join(map(str, answer.get("entity_ids", ()))),
        "relationship ids": ", ".join(map(str, answer.get("relationship_ids", ()))),
    }
    lines += [f"  {name:<16}  {printable(str(value))}" for name, value in facts.items() if value]
    lines += _entities(answer.get("top_entities") or answer.get("entities") or ())
    lines += _relationships(answer.get("relationships") or ())
    more = _more(answer).removeprefix("; ")
    return "\n".join([*lines, *(["", more] if more else [])])


def _distribution(statistics: Mapping[str, Any], kind: str) -> str:
    if not statistics:
        return ""
    types = statistics.get(f"{kind}_type_distribution", {})
    each = ", ".join(f"{count:,} {type_}" for type_, count in types.items())
    return f"{statistics[f'{kind}_count']:,}" + (f" ({each})" if each else "")


def _entities(entities: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for entity in entities:
        aliases = [f"also {', '.join(entity['aliases'])}"] if entity.get("aliases") else []
        more = "; ".join([*aliases, *filter(None, [_attributes(entity)])])
        keys = ("entity_id", "entity_type", "confidence", "mentions")
        rows.append([*(_cell(entity[key]) for key in keys), f"{entity['name']}{more and f' ({more})'}"])
    head = ("id", "type", "confidence", "mentions", "entity")
    return ["", *table_lines(head, rows, text_width())] if rows else []


def _attributes(owner: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in (owner.get("attributes") or {}).items()
    )


def _relationships(relationships: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            _cell(one["relationship_id"]),
            _cell(one["confidence"]),
            f"{one['source_name']} {one['relationship_type']} {one['target_name']}"
            + (f" ({attributes})" if (attributes := _attributes(one)) else ""),
        )
        for one in relationships
    ]
    return ["", *table_lines(("id", "confidence", "relationship"), rows, text_width())] if rows else []


def printed_statistics(statistics: StoreStatistics) -> str:
    """The statistics of the store: a line for each fact."""
    return "\n".join(_lines(msgspec.structs.asdict(statistics)))


def printed_counts(counts: Mapping[str, int]) -> str:
    return "\n".join(_lines(counts)) or "nothing"


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    longest = max(map(len, facts), default=0)
    for name, value in facts.items():
        text = f"{value:,}" if isinstance(value, int) else printable(_cell(value))
        if isinstance(value, dict):
            text = ", ".join(f"{printable(key)} {count:,}" for key, count in value.items())
        yield f"{name.replace('_', ' '):<{longest}}  {text or '-'}"


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
    return str(value)


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
        quoted = [found.span() for found in _QUOTED.finditer(sentence)]
        # From the last on, so that the places of those before stay.
        for found in reversed(list(tools.finditer(sentence))):
            if not any(start < found.start() < end for start, end in quoted):
                sentence = sentence[: found.start()] + found.expand(commands) + sentence[found.end() :]
    return sentence


# By the tool that answers.
PRINTERS: Final = {
    "semantic_search": printed_search,
    "find_vendor_info": printed_vendor,
    "get_chunks": printed_chunks,
    "list_sources": printed_sources,
}
