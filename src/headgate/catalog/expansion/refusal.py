"""Says in one sentence why expandSchema cannot answer, and what is there instead."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from headgate.catalog.expansion.pointer import text_of
from headgate.catalog.expansion.saying import MOST_NAMED, cut, named, written
from headgate.catalog.expansion.schema import LONGEST_PATH, Lost, Part, Schema
from headgate.catalog.public_names import EXPAND_SCHEMA
from headgate.domain.arguments import unknown_argument
from headgate.domain.errors import ExpansionRefused

_MOST_DEAD_ENDS: Final = 3


def no_tool() -> ExpansionRefused:
    """Nobody knows whose schema is wanted."""
    return ExpansionRefused("toolName is required")


def unreadable() -> ExpansionRefused:
    """Arguments that no parser takes."""
    return ExpansionRefused(
        "the arguments cannot be read: a text in them is broken, or they are nested too deep"
    )


def unknown_members(unknown: Sequence[str], known: Sequence[str]) -> ExpansionRefused:
    """Members that the tool does not have, and those that it has."""
    return ExpansionRefused(unknown_argument(EXPAND_SCHEMA, unknown, known))


def bad_path() -> ExpansionRefused:
    """A path of another type."""
    return ExpansionRefused('path must be a list of names, such as ["metadata","shipping"]')


def long_path(length: int) -> ExpansionRefused:
    """A path that no schema has."""
    return ExpansionRefused(f"path has {length} names, and at most {LONGEST_PATH} are followed")


def bad_mode() -> ExpansionRefused:
    """A mode that does not exist."""
    return ExpansionRefused('mode must be "schema" or "docs"')


def unopened(tool: str) -> ExpansionRefused:
    """A definition that no parser takes."""
    return ExpansionRefused(f"{tool} is nested too deep to be taken apart; leave path out to get it whole")


def no_part(schema: Schema, lost: Lost, tool: str) -> ExpansionRefused:
    """A path that ends before its last name: how far it leads, and where it could go from there."""
    where = written(map(cut, lost.steps)) if lost.steps else "the arguments"
    missing = cut(lost.missing)
    # Before anything is opened only to be named.
    unsure = schema.levels.exhausted
    problems = [f"No {missing!r} in {where} of {tool}"]
    if unsure:
        problems = [f"{tool} is too large to be searched for {missing!r} in {where}"]
    children = schema.children(lost.part, MOST_NAMED)
    if children.first:
        problems.append(f"there are: {named(map(cut, children.first), children.total)}")
    elif not schema.levels.exhausted:
        problems.append("nothing is inside")
    problems += _dead_ends(schema, lost.part)
    if unsure:
        problems.append("leave path out to get it whole")
    return ExpansionRefused("; ".join(problems))


def _dead_ends(schema: Schema, part: Part) -> list[str]:
    """References where the missing name may be, in what is not here."""
    if part.container:
        return []
    references = (schema.levels.member(face.value, "$ref") for face in schema.faces.near(part.value))
    dead = (
        f"its $ref {cut(said)!r} {reason(said)}"
        for reference in references
        if (said := text_of(reference)) is not None and not schema.faces.target(reference)
    )
    return list(islice(dead, _MOST_DEAD_ENDS))


def reason(reference: str) -> str:
    """Why nothing is found at the end of a reference."""
    return "leads nowhere" if reference.startswith("#") else "is outside of the schema and never fetched"
