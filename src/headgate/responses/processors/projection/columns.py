"""Keeps or leaves out columns of text with separators; what is left is such a text again."""

import csv
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from headgate.responses.delimited import Delimited, written
from headgate.responses.paths import EVERY, Path, nearest_names

# For so many of the names that are no column the nearest ones are looked for.
_MOST_CORRECTED = 5


def projected_columns(
    table: Delimited, fields: Mapping[str, Path], exclude: Mapping[str, Path]
) -> tuple[bytes, dict[str, Any]] | None:
    """The columns that are left, in their order, and facts about them; None where a record cannot be read."""
    kept = _meant(table.names, fields) if fields else set(range(len(table.names)))
    chosen = sorted(kept - _meant(table.names, exclude))
    facts: dict[str, Any] = {"separator": table.separator} | _not_found(table.names, {**fields, **exclude})
    try:
        rows = [_padded(record, len(table.names)) for record in table.records()]
    except csv.Error:
        return None
    if not chosen:
        return b"", facts
    names = [[table.names[at] for at in chosen]]
    pick = itemgetter(*chosen) if len(chosen) > 1 else lambda row: (row[chosen[0]],)
    return written([*names, *map(pick, rows)], table.separator), facts


def _padded(record: list[str], count: int) -> list[str]:
    return record if len(record) >= count else record + [""] * (count - len(record))


def _meant(names: Sequence[str], asked: Mapping[str, Path]) -> set[int]:
    """Where the columns are that the fields mean."""
    found: set[int] = set()
    for field, path in asked.items():
        found |= _columns(names, field, path)
    return found


def _columns(names: Sequence[str], field: str, path: Path) -> set[int]:
    if field in names:
        # A dot in the name of a column is a part of it.
        return {names.index(field)}
    steps = [step for step in path if step is not EVERY]
    if not steps:
        return set(range(len(names)))
    return {names.index(str(steps[0]))} if len(steps) == 1 and str(steps[0]) in names else set()


def _not_found(names: Sequence[str], asked: Mapping[str, Path]) -> dict[str, Any]:
    missing = [field for field, path in asked.items() if not _columns(names, field, path)]
    if not missing:
        return {}
    nearest = {field: nearest_names(field, names) for field in missing[:_MOST_CORRECTED]}
    return {"fields_not_found": missing, "nearest_fields": nearest}
