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
    allowed = known[mode] if mode is not Mode.AUTO else {field for own in known.values() for field in own}
    check_fields(fields, allowed, f"response_mode '{mode}'", known)
    modes = fitting_modes(mode, fields, known)
    if not modes:
        raise InvalidQuestion(
            f"No response_mode has all of these fields: {sorted(set(fields or ()))}",
            hint=_homes(fields or (), known),
            hinted=True,
        )
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
    homes = _homes(wrong, elsewhere)
    raise InvalidQuestion(
        f"Invalid fields for {where}: {shown}. Allowed fields: {sorted(allowed)}",
        hint=homes or "leave out fields to get all of them, or name only those that are allowed",
        hinted=bool(homes),
    )


def _homes(fields: Iterable[str], known: Mapping[Mode, Sequence[str]]) -> str:
    """Which modes to take for each of the fields; nothing of those that none has."""
    modes = {field: [str(mode) for mode in known if field in known[mode]] for field in sorted(set(fields))}
    told = (f"response_mode {' or '.join(names)} for {field}" for field, names in modes.items() if names)
    joined = ", ".join(told)
    return f"take {joined}" if joined else ""


def only(item: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The item with just these keys, in their order."""
    return {field: item[field] for field in fields if field in item}
