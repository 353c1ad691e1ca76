"""What `headgate knowledge` prints of answers and of the store: tables for people, JSON for programs."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.evaluation.columns import columns, printable
from headgate.knowledge.searching import DEPTH
from headgate.knowledge.values import Statistics

_USUAL_WIDTH: Final = 100
_INDENT: Final = "   "
# Of a table that is better wide than cut.
_WIDEST: Final = 1_000
_CHUNK: Final = {"chunk": "chunk_id"}
_RANKED: Final = {"rank": "rank", "score": "hybrid_score", **_CHUNK}
_SOURCE: Final = {
    "category": "source_category",
    "type": "doc_type",
    "date": "date",
    "chunks": "total_chunks",
    "file": "source_file",
}


def document(value: object) -> str:
    """The value as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def many(count: int, one: str, several: str = "") -> str:
    """A number of things, each of which is called so."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def width() -> int:
    """How wide a table may be."""
    return shutil.get_terminal_size((_USUAL_WIDTH, 0)).columns


def warned(answer: Mapping[str, Any]) -> list[str]:
    """What an answer warns of, a line for each."""
    return [
        printable(
            f"{one['message'].removesuffix('.')}; {one['suggestion'][:1].lower()}{one['suggestion'][1:]}"
        )
        for one in answer.get("warnings", ())
    ]


def printed_search(answer: Mapping[str, Any], *, as_json: bool) -> str:
    """The chunks that were found: a table or, where there is all of their text, one after the other."""
    if as_json:
        return document(answer)
    results = answer["results"]
    if not results:
        return "Nothing was found."
    lines = _blocks(results) if "chunk_text" in results[0] else _table(results, _RANKED)
    total = answer["total_found"]
    # A list that is as deep as lists go ends where it was cut.
    found = (
        f"{len(results)} of the best {total:,}" if total >= DEPTH else f"{len(results)} of {total:,} found"
    )
    how = f"{answer['strategy_used']}, {answer['execution_time_ms']:.0f} ms"
    return "\n".join([*lines, *_explained(results), "", f"{found} ({how}){_more(answer)}"])


def _table(results: Sequence[Mapping[str, Any]], first: Mapping[str, str]) -> list[str]:
    """The first columns, and as many more as the mode has to show."""
    shown = dict(first)
    if "context_header" in results[0]:
        shown |= {"where": "context_header", "text": "chunk_snippet"}
    elif "source_file" in results[0]:
        results = [{**result, "part": _place(result)} for result in results]
        shown |= {"part": "part", "category": "source_category", "file": "source_file"}
    rows = [[_cell(result[key]) for key in shown.values()] for result in results]
    return columns(list(shown), rows, width())


def _place(chunk: Mapping[str, Any]) -> str:
    """Which one of its document's chunks it is."""
    return f"{chunk['chunk_index'] + 1:,} of {chunk['total_chunks']:,}"


def _blocks(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for result in results:
        yield f"{result['rank']}. {printable(result['context_header'])}"
        score = f", score {_cell(result['hybrid_score'])}"
        yield f"{_INDENT}chunk {result['chunk_id']}, part {_place(result)}{score}"
        yield from _text(result)


def _text(chunk: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield from (f"{_INDENT}{printable(line)}".rstrip() for line in chunk["chunk_text"].splitlines())
    yield ""


def _explained(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the scores come from, if that was asked for."""
    if not results[0].get("explanation"):
        return []
    head = ("rank", "by meaning", "by words", "fused", "score", "boosts")
    rows = []
    for result in results:
        said = result["explanation"]
        boosts = ", ".join(f"{name} +{share:.0%}" for name, share in said["boosts"].items())
        lists = [_contribution(said["vector"]), _contribution(said["bm25"])]
        rows.append(
            (_cell(result["rank"]), *lists, _cell(said["fused"]), _cell(said["score"]), boosts or "-")
        )
    return ["", *columns(head, rows, _WIDEST)]


def _contribution(given: Mapping[str, Any] | None) -> str:
    if given is None:
        return "-"
    score = given.get("similarity", given.get("score"))
    return f"rank {given['rank']}, {_cell(score)}: {_cell(given['contribution'])}"


def _more(answer: Mapping[str, Any]) -> str:
    page = answer["pagination"]
    return f"; more with --cursor {page['cursor']}" if page["has_more"] else ""


def printed_chunks(answer: Mapping[str, Any], *, as_json: bool) -> str:
    """Chunks that were asked for by their ids, one after the other or, without their text, as a table."""
    if as_json:
        return document(answer)
    chunks = answer["results"]
    if not chunks:
        return "Nothing is there."
    if "chunk_text" in chunks[0]:
        return "\n".join(line for chunk in chunks for line in _chunk(chunk)).rstrip()
    return "\n".join(_table(chunks, _CHUNK))


def _chunk(chunk: Mapping[str, Any]) -> Iterator[str]:
    yield f"chunk {chunk['chunk_id']}, part {_place(chunk)}: {printable(chunk['context_header'])}"
    yield from _text(chunk)


def printed_sources(answer: Mapping[str, Any], *, as_json: bool) -> str:
    """A table of documents."""
    if as_json:
        return document(answer)
    if not answer["sources"]:
        return "There is no such document."
    rows = [[_cell(source[key]) for key in _SOURCE.values()] for source in answer["sources"]]
    found = f"{len(rows)} of {many(answer['total_found'], 'document')}"
    return "\n".join([*columns(list(_SOURCE), rows, width()), "", f"{found}{_more(answer)}"])


def printed_vendor(answer: Mapping[str, Any], *, as_json: bool) -> str:
    """What is known of a vendor: its facts, then tables of entities and relationships."""
    if as_json:
        return document(answer)
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
    shown = ("entity_id", "entity_type", "confidence", "mentions")
    rows = [[*(_cell(entity[key]) for key in shown), _entity(entity)] for entity in entities]
    return ["", *columns(("id", "type", "confidence", "mentions", "entity"), rows, width())] if rows else []


def _entity(entity: Mapping[str, Any]) -> str:
    """The name, with what else it is called and has, if that was asked for."""
    aliases = [f"also {', '.join(entity['aliases'])}"] if entity.get("aliases") else []
    more = "; ".join([*aliases, *filter(None, [_attributes(entity)])])
    return f"{entity['name']} ({more})" if more else str(entity["name"])


def _attributes(owner: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(value)}" for name, value in (owner.get("attributes") or {}).items())


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    return ["", *columns(("id", "confidence", "relationship"), rows, width())] if rows else []


def printed_statistics(statistics: Statistics, *, as_json: bool) -> str:
    """What there is in the store: a line for each fact, or one JSON document."""
    facts = msgspec.structs.asdict(statistics)
    return document(facts) if as_json else "\n".join(_lines(facts))


def printed_counts(counts: Mapping[str, int], *, as_json: bool) -> str:
    """How many lines of each kind were written."""
    return document(counts) if as_json else "\n".join(_lines(counts)) or "nothing"


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    longest = max(map(len, facts), default=0)
    for name, value in facts.items():
        said = f"{value:,}" if isinstance(value, int) else printable(_cell(value))
        if isinstance(value, dict):
            said = ", ".join(f"{printable(key)} {count:,}" for key, count in value.items())
        yield f"{name.replace('_', ' '):<{longest}}  {said or '-'}"


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
    return str(value)
