"""Which keys of an answer are wanted, and what to say when there are none of that name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.domain.errors import InvalidQuestion
from headgate.knowledge.modes import Mode, fitting_modes

# Of each name, and so many of them: who sends thousands need not read them all again.
_LONGEST = 60
_MOST = 20


def modes_with(
    fields: Sequence[str] | None, mode: Mode, known: Mapping[Mode, Sequence[str]]
) -> tuple[Mode, ...]:
    """The modes that an answer with these fields may be given in, the richest first.

    Raises InvalidQuestion when there are none, which names the fields that are wrong and those that are not.
    """
    modes = fitting_modes(mode, fields, known)
    if not modes:
        check_fields(fields, known[Mode.FULL], f"response_mode '{mode}'")
    elif mode is not Mode.AUTO:
        check_fields(fields, known[mode], f"response_mode '{mode}'")
    return modes


def check_fields(fields: Sequence[str] | None, allowed: Iterable[str], where: str) -> None:
    """Raises InvalidQuestion when one of them is not allowed there."""
    wrong = sorted(set(fields or ()) - set(allowed))
    if not wrong:
        return
    shown = [field if len(field) <= _LONGEST else f"{field[: _LONGEST - 1]}…" for field in wrong[:_MOST]]
    raise InvalidQuestion(
        f"Invalid fields for {where}: {shown}. Allowed fields: {sorted(allowed)}",
        hint="leave out fields to get all of them, or name only those that are allowed",
    )


def only(item: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The item with just these keys, in their order."""
    return {field: item[field] for field in fields if field in item}
