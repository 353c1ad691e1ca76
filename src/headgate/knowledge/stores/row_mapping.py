"""Rows of what is known as values; the columns are in the order of the fields, in every store."""

from collections.abc import Sequence
from typing import Any

import msgspec

from headgate.knowledge.data_model import ChunkRecord, Entity, Relationship, SourceRecord


def source_from_row(row: Sequence[Any]) -> SourceRecord:
    """A source from its columns."""
    return SourceRecord(**dict(zip(SourceRecord.__struct_fields__, row, strict=True)))


def chunk_from_row(row: Sequence[Any]) -> ChunkRecord:
    """A chunk from its columns and those of its source."""
    return ChunkRecord(**dict(zip(ChunkRecord.__struct_fields__, row, strict=True)))


def entity_from_row(row: Sequence[Any]) -> Entity:
    """An entity from its columns; aliases and attributes are JSON."""
    members = dict(zip(Entity.__struct_fields__, row, strict=True))
    members["aliases"] = tuple(msgspec.json.decode(members["aliases"]))
    members["attributes"] = msgspec.json.decode(members["attributes"])
    members["imported"] = bool(members["imported"])
    return Entity(**members)


def relationship_from_row(row: Sequence[Any]) -> Relationship:
    """A relationship from its columns; attributes are JSON."""
    members = dict(zip(Relationship.__struct_fields__, row, strict=True))
    members["attributes"] = msgspec.json.decode(members["attributes"])
    return Relationship(**members)
