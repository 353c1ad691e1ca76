"""Entities and relationships in files: JSONL and CSV are read, JSONL is written."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.domain.errors import InvalidGraph, quoted
from headgate.knowledge.values import Entity, NewEntity, NewRelationship, Relationship, name_key

LONGEST_NAME: Final = 200
_ENTITY: Final = ("kind", "id", "type", "name", "aliases", "confidence", "attributes")
_RELATIONSHIP: Final = ("kind", "source", "target", "type", "confidence", "attributes")
_ENTITY_COLUMNS: Final = frozenset({"name", "type", "id", "aliases", "confidence"})
_RELATIONSHIP_COLUMNS: Final = frozenset({"source", "target", "type", "confidence"})
_NEEDED: Final = "name,type or source,target,type"
_KINDS: Final = ("entity", "relationship")
# What else a whole export has.
_NO_GRAPH: Final = ("source", "chunk")
_MIXED: Final = "mixes entities and relationships; one kind per CSV, use JSONL for both"

_Graph = tuple[list[NewEntity], list[NewRelationship]]


def read_graph(name: str, lines: Iterable[str]) -> _Graph:
    """The entities and relationships of a file: CSV when it is called so, otherwise JSON lines.

    Raises InvalidGraph with the file, the line and what is allowed; then nothing of the file counts.
    """
    reading = _Reading(name.replace("\\", "/").rpartition("/")[2])
    if name.lower().endswith(".csv"):
        reading.read_csv(lines)
    else:
        reading.read_jsonl(lines)
    return reading.entities, reading.relationships


def written(entities: Sequence[Entity], relationships: Iterable[Relationship]) -> Iterator[str]:
    """Lines of JSON that read back to the same graph; an entity without an external id gets one."""
    ids = _ids(entities)
    for entity in entities:
        yield _line(
            {
                "kind": "entity",
                "id": ids[entity.id],
                "type": entity.type,
                "name": entity.name,
                "aliases": list(entity.aliases) or None,
                "confidence": entity.confidence if entity.confidence != 1.0 else None,
                "attributes": entity.attributes or None,
            }
        )
    for relationship in relationships:
        yield _line(
            {
                "kind": "relationship",
                "source": ids[relationship.source_id],
                "target": ids[relationship.target_id],
                "type": relationship.type,
                "confidence": relationship.confidence if relationship.confidence != 1.0 else None,
                "attributes": relationship.attributes or None,
            }
        )


def _line(members: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in members.items() if value is not None}
    return msgspec.json.encode(kept).decode() + "\n"


def _ids(entities: Sequence[Entity]) -> dict[int, str]:
    """What relationships call each entity: nothing else in the graph is called so."""
    taken = {entity.external_id for entity in entities}
    taken |= {name_key(name) for entity in entities for name in (entity.name, *entity.aliases)}
    ids: dict[int, str] = {}
    for entity in entities:
        id = entity.external_id or f"entity-{entity.id}"
        while not entity.external_id and id in taken:
            id += "-x"
        taken.add(id)
        ids[entity.id] = id
    return ids


class _Reading:
    """One file on its way in."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._line_of_id: dict[str, int] = {}
        self.entities: list[NewEntity] = []
        self.relationships: list[NewRelationship] = []

    def read_jsonl(self, lines: Iterable[str]) -> None:
        for number, line in enumerate(_without_mark(lines), 1):
            if line.strip():
                self._take(number, self._decoded(number, line.strip()))

    def read_csv(self, lines: Iterable[str]) -> None:
        # A line that lost its end would join the next one inside quotes.
        whole = (line if line.endswith(("\n", "\r")) else line + "\n" for line in _without_mark(lines))
        rows = csv.reader(whole, strict=True)
        header: list[str] | None = None
        number = 1
        try:
            for row in rows:
                if any(cell.strip() for cell in row):
                    if header is None:
                        header = self._header(number, row)
                    else:
                        self._take(number, self._members(number, header, row))
                number = rows.line_num + 1
        except csv.Error as error:
            raise self._invalid(number, f"is no CSV ({error})") from error

    def _decoded(self, number: int, line: str) -> dict[str, Any]:
        try:
            members = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._invalid(number, "is no JSON; each line is one object") from error
        if not isinstance(members, dict):
            raise self._invalid(number, "is no object; each line is one object")
        return members

    def _header(self, number: int, row: Sequence[str]) -> list[str]:
        names = [cell.strip() for cell in row]
        known = _ENTITY_COLUMNS | _RELATIONSHIP_COLUMNS
        header = [name.lower() if name.lower() in known else name for name in names]
        columns = set(header)
        if "" in columns or len(columns) < len(header):
            raise self._invalid(number, "has a column without a name, or two of one name")
        if not ({"source", "target", "type"} <= columns or {"name", "type"} <= columns):
            raise self._invalid(number, f"is no header; columns that are needed: {_NEEDED}")
        if {"source", "target", "name", "kind"} <= {name.lower() for name in columns}:
            raise self._invalid(number, _MIXED)
        return header

    def _members(self, number: int, header: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
        """A row as the object that would say the same."""
        if len(row) != len(header):
            raise self._invalid(number, f"has {len(row)} cells; the header has {len(header)}")
        cells = {column: cell.strip() for column, cell in zip(header, row, strict=True) if cell.strip()}
        own = _RELATIONSHIP_COLUMNS if {"source", "target"} <= set(header) else _ENTITY_COLUMNS
        members: dict[str, Any] = {column: cell for column, cell in cells.items() if column in own}
        # An empty cell where something is needed is told as that.
        members["kind"] = "relationship" if own is _RELATIONSHIP_COLUMNS else "entity"
        members["attributes"] = {column: cell for column, cell in cells.items() if column not in own}
        self._check_kind(number, members)
        if "aliases" in members:
            members["aliases"] = _aliases(members["aliases"])
        if "confidence" in members:
            members["confidence"] = self._number(number, members["confidence"])
        return members

    def _check_kind(self, number: int, members: dict[str, Any]) -> None:
        """A column that tells the kind, as JSON lines do, tells the same in every row."""
        column = next((name for name in members["attributes"] if name.lower() == "kind"), None)
        if column is None or members["attributes"][column].lower() not in _KINDS:
            return
        if members["attributes"].pop(column).lower() != members["kind"]:
            raise self._invalid(number, _MIXED)

    def _number(self, number: int, cell: str) -> float:
        try:
            return float(cell)
        except ValueError as error:
            raise self._invalid(number, _wrong("confidence", cell, "a number from 0 to 1")) from error

    def _take(self, number: int, members: dict[str, Any]) -> None:
        related = "source" in members or "target" in members
        kind = members.get("kind", "relationship" if related else "entity")
        if kind == "entity":
            self._allow(number, members, _ENTITY)
            self.entities.append(self._entity(number, members))
        elif kind == "relationship":
            self._allow(number, members, _RELATIONSHIP)
            self.relationships.append(self._relationship(number, members))
        elif kind in _NO_GRAPH:
            raise InvalidGraph(
                f"{self._file} is a whole export, of which only the graph can be imported",
                hint="use `headgate knowledge export --what graph`; nothing was imported",
            )
        else:
            raise self._invalid(number, _wrong("kind", kind, ", ".join(_KINDS)))

    def _allow(self, number: int, members: Mapping[str, Any], allowed: Sequence[str]) -> None:
        for member in members:
            if member not in allowed:
                listed = ", ".join(allowed)
                raise self._invalid(
                    number, f"has {quoted(member)!r}; allowed: {listed} (others go into attributes)"
                )

    def _entity(self, number: int, members: Mapping[str, Any]) -> NewEntity:
        aliases = members.get("aliases") or []
        if not isinstance(aliases, list):
            raise self._invalid(number, _wrong("aliases", aliases, "a list of names"))
        return NewEntity(
            type=self._name(number, "type", members.get("type")).upper(),
            name=self._name(number, "name", members.get("name")),
            aliases=tuple(dict.fromkeys(self._name(number, "aliases", alias) for alias in aliases)),
            confidence=self._confidence(number, members),
            attributes=self._attributes(number, members),
            external_id=self._id(number, members),
        )

    def _relationship(self, number: int, members: Mapping[str, Any]) -> NewRelationship:
        return NewRelationship(
            source=self._reference(number, "source", members.get("source")),
            target=self._reference(number, "target", members.get("target")),
            type=self._name(number, "type", members.get("type")).upper(),
            confidence=self._confidence(number, members),
            attributes=self._attributes(number, members),
        )

    def _name(self, number: int, member: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not text or len(text) > LONGEST_NAME:
            raise self._invalid(number, _wrong(member, value, f"a text of 1 to {LONGEST_NAME} characters"))
        return text

    def _reference(self, number: int, member: str, value: object) -> str:
        """An id may be a number, as databases have them."""
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return self._name(number, member, value)

    def _id(self, number: int, members: Mapping[str, Any]) -> str:
        if members.get("id") is None:
            return ""
        id = self._reference(number, "id", members["id"])
        first = self._line_of_id.setdefault(id, number)
        if first != number:
            raise self._invalid(number, f"has the id {quoted(id)!r} of line {first}; each id is given once")
        return id

    def _confidence(self, number: int, members: Mapping[str, Any]) -> float:
        value = members.get("confidence")
        if value is None:
            return 1.0
        # A comparison with what is no number is never true.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self._invalid(number, _wrong("confidence", value, "a number from 0 to 1"))
        return float(value)

    def _attributes(self, number: int, members: Mapping[str, Any]) -> dict[str, Any]:
        value = members.get("attributes")
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._invalid(number, _wrong("attributes", value, "an object"))
        return value

    def _invalid(self, number: int, what: str) -> InvalidGraph:
        return InvalidGraph(
            f"{self._file}, line {number} {what}",
            hint=f"correct line {number} of {self._file} and import it again; nothing was imported",
        )


def _aliases(cell: str) -> list[str]:
    """Between bars; between semicolons, as spreadsheets have it, where there is no bar."""
    return [alias for alias in cell.split("|" if "|" in cell else ";") if alias.strip()]


def _wrong(member: str, value: object, allowed: str) -> str:
    if value is None:
        return f"has no {member}; allowed: {allowed}"
    return f"has {member} {quoted(str(value))!r}; allowed: {allowed}"


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """Without the byte order mark that some editors put first."""
    for number, line in enumerate(lines):
        yield line.removeprefix("\ufeff") if number == 0 else line
