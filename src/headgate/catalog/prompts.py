"""What a prompt must be, so that clients can read the page it is on."""

from typing import Any

from headgate.catalog.definition import OPTIONAL, Each, Parts, definition, without_wrong_members
from headgate.domain.item import Source

_ARGUMENT = Parts({"title": str, "description": str, "required": bool}, needed={"name": str})
_OPTIONAL: dict[str, Any] = OPTIONAL | {"arguments": Each(_ARGUMENT)}


def take_in_prompt(text: str) -> tuple[Source, list[str]]:
    """The prompt, and what had to be mended; raises ValueError when it cannot be served."""
    repairs: list[str] = []
    name, found = definition(without_wrong_members(text, _OPTIONAL, repairs), "name")
    return Source(name, found), repairs
