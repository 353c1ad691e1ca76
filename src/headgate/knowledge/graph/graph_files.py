"""Entities and relationships in files: JSONL and CSV are read, JSONL is written."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import msgspec

from headgate.domain.errors import quoted
from headgate.knowledge.data_model import Entity, NewEntity, NewRelationship, Relationship, name_key
from headgate.knowledge.errors import InvalidGraph

LONGEST_NAME: Final = 200
_ENTITY: Final = ("kind", "id", "type", "name", "aliases", "confidence", "attributes")
_RELATIONSHIP: Final = ("kind", "source", "target", "type", "confidence", "attributes")
_ENTITY_COLUMNS: Final = frozenset({"name", "type", "id", "aliases", "confidence"})
_RELATIONSHIP_COLUMNS: Final = frozenset({"source", "target", "type", "confidence"})
_NEEDED: Final = "name,type or source,target,type"
_NEEDED_COLUMNS: Final = (frozenset({"name", "type"}), frozenset({"source", "target", "type"}))
_DELIMITERS: Final = (",", ";", "\t")
# All that stands in a row without a value.
_OF_EMPTY_CELLS: Final = "".join((*_DELIMITERS, '" \r\n'))
# Reported lines of an invalid file.
_MOST_REPORTED: Final = 10
_KINDS: Final = ("entity", "relationship")
# Other kinds of lines in a full export.
_NO_GRAPH: Final = ("source", "chunk", "mention")
_MIXED: Final = "mixes entities and relationships; one kind per CSV, use JSONL for both"

_Graph = tuple[list[NewEntity], list[NewRelationship]]


def read_graph(name: str, lines: Iterable[str]) -> _Graph:
    """The entities and relationships of a file: CSV when it is called so, otherwise JSON lines.

    Raises InvalidGraph with the file, the lines that are wrong and what is allowed. Then nothing counts.
    """
    reading = _read_file(name, lines)
    return reading.entities, reading.relationships


def lines_of_relationships(name: str, lines: Iterable[str]) -> list[int]:
    """The line on which each relationship of a file begins; raises what `read_graph` does."""
    return _read_file(name, lines).lines


def graph_lines(entities: Sequence[Entity], relationships: Iterable[Relationship]) -> Iterator[str]:
    """Lines of JSON that read back to the same graph.

    An entity without an external id is called by its name, and gets an id where that is not its alone.
    """
    ids, made_up = _ids(entities)
    for entity in entities:
        yield _line(
            kind="entity",
            id=ids[entity.id] if entity.external_id or entity.id in made_up else None,
            type=entity.type,
            name=entity.name,
            aliases=list(entity.aliases) or None,
            confidence=entity.confidence if entity.confidence != 1.0 else None,
            attributes=entity.attributes or None,
        )
    for relationship in relationships:
        yield _line(
            kind="relationship",
            source=ids[relationship.source_id],
            target=ids[relationship.target_id],
            type=relationship.type,
            confidence=relationship.confidence if relationship.confidence != 1.0 else None,
            attributes=relationship.attributes or None,
        )


def _line(**members: Any) -> str:
    kept = {name: value for name, value in members.items() if value is not None}
    return msgspec.json.encode(kept).decode() + "\n"


def _ids(entities: Sequence[Entity]) -> tuple[dict[int, str], set[int]]:
    """The name of each entity in relationships, and the entities whose name is generated.

    Nothing else in the graph is called so, in any case. Two imports may have given the same id to different
    entities: the first keeps it.
    """
    taken = Counter(
        key
        for one in entities
        for key in {name_key(name) for name in (one.name, *one.aliases, one.external_id)}
    )
    given: set[str] = set()
    ids: dict[int, str] = {}
    made_up: set[int] = set()
    for entity in entities:
        id = entity.external_id or (entity.name if taken[name_key(entity.name)] == 1 else "")
        if not id or name_key(id) in given:
            id = f"entity-{entity.id}"
            while name_key(id) in taken:
                id += "-x"
            taken[name_key(id)] += 1
            made_up.add(entity.id)
        given.add(name_key(id))
        ids[entity.id] = id
    return ids, made_up


class _InvalidGraphLine(Exception):
    """The error of a line, and the allowed values."""


def _read_file(name: str, lines: Iterable[str]) -> "_GraphFileReader":
    reading = _GraphFileReader(name.replace("\\", "/").rpartition("/")[2])
    # Without the byte order mark that some editors put first.
    lines = (line if number else line.removeprefix("\ufeff") for number, line in enumerate(lines))
    if name.lower().endswith(".csv"):
        reading.read_csv(lines)
    else:
        reading.read_jsonl(lines)
    reading.refuse_wrong()
    return reading


class _GraphFileReader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._line_of_id: dict[str, int] = {}
        self._wrong: list[tuple[int, str]] = []
        self.entities: list[NewEntity] = []
        self.relationships: list[NewRelationship] = []
        # By relationship.
        self.lines: list[int] = []

    def read_jsonl(self, lines: Iterable[str]) -> None:
        for number, line in enumerate(lines, 1):
            if line.strip():
                with self._collecting_errors(number):
                    try:
                        members = msgspec.json.decode(line.strip())
                    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                        raise _InvalidGraphLine("is no JSON; each line is one object") from error
                    if not isinstance(members, dict):
                        raise _InvalidGraphLine("is no object; each line is one object")
                    self._add_line(number, members)

    def read_csv(self, lines: Iterable[str]) -> None:
        # A line that lost its end would join the next one inside quotes.
        whole = (line if line.endswith(("\n", "\r")) else line + "\n" for line in lines)
        # Up to and including the first that is not empty.
        first: list[str] = []
        while not (first and first[-1].strip(_OF_EMPTY_CELLS)) and (line := next(whole, "")):
            first.append(line)
        rows = csv.reader(chain(first, whole), strict=True, delimiter=_delimiter(first[-1] if first else ""))
        header: list[str] | None = None
        number = 1
        try:
            for row in rows:
                if any(cell.strip() for cell in row):
                    if header is None:
                        header = _header(row)
                    else:
                        with self._collecting_errors(number):
                            self._add_line(number, _members(header, row))
                number = rows.line_num + 1
        except csv.Error as error:
            self._wrong.append((number, f"is no CSV ({error})"))
        except _InvalidGraphLine as wrong:
            # The header, without which the rows have no meaning.
            self._wrong.append((number, str(wrong)))

    def refuse_wrong(self) -> None:
        if len(self._wrong) > 1:
            lines = " ".join(f"Line {number} {what}." for number, what in self._wrong[:_MOST_REPORTED])
            more = len(self._wrong) - _MOST_REPORTED
            raise InvalidGraph(
                f"{self._file} has {len(self._wrong)} wrong lines. {lines}"
                + (f" And {more} more." if more > 0 else ""),
                hint=f"correct these lines of {self._file} and import it again; nothing was imported",
            )
        for number, what in self._wrong:
            raise InvalidGraph(
                f"{self._file}, line {number} {what}",
                hint=f"correct line {number} of {self._file} and import it again; nothing was imported",
            )

    @contextmanager
    def _collecting_errors(self, number: int) -> Iterator[None]:
        """Read the other lines too, so that all errors are reported at once."""
        try:
            yield
        except _InvalidGraphLine as wrong:
            self._wrong.append((number, str(wrong)))

    def _add_line(self, number: int, members: dict[str, Any]) -> None:
        related = "source" in members or "target" in members
        kind = members.get("kind", "relationship" if related else "entity")
        if kind == "entity":
            _allow(members, _ENTITY)
            external_id = "" if members.get("id") is None else _reference("id", members["id"])
            first = self._line_of_id.setdefault(external_id, number) if external_id else number
            if first != number:
                raise _InvalidGraphLine(
                    f"has the id {quoted(external_id)!r} of line {first}; each id is given once"
                )
            self.entities.append(_entity(members, external_id))
        elif kind == "relationship":
            _allow(members, _RELATIONSHIP)
            self.relationships.append(
                NewRelationship(
                    source=_reference("source", members.get("source")),
                    target=_reference("target", members.get("target")),
                    type=_name("type", members.get("type")).upper(),
                    confidence=_confidence(members),
                    attributes=_attributes(members),
                )
            )
            self.lines.append(number)
        elif kind in _NO_GRAPH:
            raise InvalidGraph(
                f"{self._file} is a whole export, of which only the graph can be imported",
                hint="use `headgate knowledge export --what imported`, or graph; nothing was imported",
            )
        else:
            raise _InvalidGraphLine(_wrong("kind", kind, ", ".join(_KINDS)))


def _delimiter(header: str) -> str:
    """The delimiter of the header; spreadsheets of some countries write semicolons."""
    for mark in _DELIMITERS:
        columns = {name.strip('" \r\n').lower() for name in header.split(mark)}
        if any(needed <= columns for needed in _NEEDED_COLUMNS):
            return mark
    return _DELIMITERS[0]


def _header(row: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in row]
    known = _ENTITY_COLUMNS | _RELATIONSHIP_COLUMNS
    header = [name.lower() if name.lower() in known else name for name in names]
    columns = set(header)
    if "" in columns or len(columns) < len(header):
        raise _InvalidGraphLine("has a column without a name, or two of one name")
    if not any(needed <= columns for needed in _NEEDED_COLUMNS):
        raise _InvalidGraphLine(f"is no header; columns that are needed: {_NEEDED}")
    if {"source", "target", "name", "kind"} <= {name.lower() for name in columns}:
        raise _InvalidGraphLine(_MIXED)
    return header


def _members(header: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """A row as the object that would say the same."""
    if len(row) != len(header):
        raise _InvalidGraphLine(f"has {len(row)} cells; the header has {len(header)}")
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=True) if cell.strip()}
    own = _RELATIONSHIP_COLUMNS if {"source", "target"} <= set(header) else _ENTITY_COLUMNS
    members: dict[str, Any] = {column: cell for column, cell in cells.items() if column in own}
    # An empty cell of a required column has its own message.
    members["kind"] = "relationship" if own is _RELATIONSHIP_COLUMNS else "entity"
    members["attributes"] = {column: cell for column, cell in cells.items() if column not in own}
    # A column of kinds, as JSON lines have, has one value in all rows.
    kinds = next((name for name in members["attributes"] if name.lower() == "kind"), None)
    if kinds is not None and (kind := members["attributes"][kinds].lower()) in _KINDS:
        del members["attributes"][kinds]
        if kind != members["kind"]:
            raise _InvalidGraphLine(_MIXED)
    if "aliases" in members:
        # Between bars; between semicolons, as spreadsheets have it, where there is no bar.
        mark = "|" if "|" in members["aliases"] else ";"
        members["aliases"] = [alias for alias in members["aliases"].split(mark) if alias.strip()]
    if "confidence" in members:
        try:
            # As it is written where columns stand between semicolons.
            members["confidence"] = float(members["confidence"].replace(",", "."))
        except ValueError as error:
            wrong = _wrong("confidence", members["confidence"], "a number from 0 to 1")
            raise _InvalidGraphLine(wrong) from error
    return members


def _allow(members: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for member in members:
        if member not in allowed:
            listed = ", ".join(allowed)
            raise _InvalidGraphLine(f"has {quoted(member)!r}; allowed: {listed} (others go into attributes)")


def _entity(members: Mapping[str, Any], external_id: str) -> NewEntity:
    aliases = members.get("aliases") or []
    if not isinstance(aliases, list):
        raise _InvalidGraphLine(_wrong("aliases", aliases, "a list of names"))
    return NewEntity(
        type=_name("type", members.get("type")).upper(),
        name=_name("name", members.get("name")),
        aliases=tuple(dict.fromkeys(_name("aliases", alias) for alias in aliases)),
        confidence=_confidence(members),
        attributes=_attributes(members),
        external_id=external_id,
    )


def _name(member: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > LONGEST_NAME:
        raise _InvalidGraphLine(_wrong(member, value, f"a text of 1 to {LONGEST_NAME} characters"))
    # Not every store can keep it.
    if "\0" in text:
        raise _InvalidGraphLine(_wrong(member, value, "a text without the character NUL"))
    return text


def _reference(member: str, value: object) -> str:
    """An id may be a number, as databases have them."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return _name(member, value)


def _confidence(members: Mapping[str, Any]) -> float:
    value = members.get("confidence")
    if value is None:
        return 1.0
    # A comparison with what is no number is never true.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _InvalidGraphLine(_wrong("confidence", value, "a number from 0 to 1"))
    return float(value)


def _attributes(members: Mapping[str, Any]) -> dict[str, Any]:
    value = members.get("attributes")
    if value is not None and not isinstance(value, dict):
        raise _InvalidGraphLine(_wrong("attributes", value, "an object"))
    return value or {}


def _wrong(member: str, value: object, allowed: str) -> str:
    if value is None:
        return f"has no {member}; allowed: {allowed}"
    return f"has {member} {quoted(str(value))!r}; allowed: {allowed}"
