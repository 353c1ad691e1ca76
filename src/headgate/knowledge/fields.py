"""Which keys of an answer are wanted, and what to say when there are none of that name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.domain.errors import InvalidQuestion
from headgate.knowledge.modes import Mode, fitting_modes

# Of each name, and so many of them: who sends thousands need not read them all again.
_LONGEST = 60
_MOST = 20
_NOWHERE: Final[Mapping[Mode, Sequence[str]]] = {}


def modes_with(
    fields: Sequence[str] | None, mode: Mode, known: Mapping[Mode, Sequence[str]]
) -> tuple[Mode, ...]:
    """The modes that an answer with these fields may be given in, the richest first.

    Raises InvalidQuestion when there are none, which names the fields that are wrong and those that are not.
    """
    modes = fitting_modes(mode, fields, known)
    if not modes:
        check_fields(fields, known[Mode.FULL], f"response_mode '{mode}'", known)
    elif mode is not Mode.AUTO:
        check_fields(fields, known[mode], f"response_mode '{mode}'", known)
    return modes


def check_fields(
    fields: Sequence[str] | None,
    allowed: Iterable[str],
    where: str,
    elsewhere: Mapping[Mode, Sequence[str]] = _NOWHERE,
) -> None:
    """Raises InvalidQuestion when one of them is not allowed there; `elsewhere` has those of each mode."""
    wrong = sorted(set(fields or ()) - set(allowed))
    if not wrong:
        return
    shown = [field if len(field) <= _LONGEST else f"{field[: _LONGEST - 1]}…" for field in wrong[:_MOST]]
    modes = {field: [str(mode) for mode in elsewhere if field in elsewhere[mode]] for field in wrong}
    has = [
        f"{field} is a field of response_mode {' or '.join(names)}" for field, names in modes.items() if names
    ]
    raise InvalidQuestion(
        f"Invalid fields for {where}: {shown}. Allowed fields: {sorted(allowed)}",
        hint="; ".join(has) or "leave out fields to get all of them, or name only those that are allowed",
        hinted=bool(has),
    )


def only(item: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The item with just these keys, in their order."""
    return {field: item[field] for field in fields if field in item}
