"""How the items of one kind get their public names."""

from collections.abc import Collection, Sequence
from typing import Protocol

from headgate.catalog.memory import Corner
from headgate.catalog.names import Key, allot, public_name


class Naming(Protocol):
    """Gives each item of a kind a public name."""

    def plain(self, server: str, name: str) -> str:
        """What it is called before collisions are looked at; worked out once for each item."""

    def names(self, wanted: Sequence[tuple[Key, str]]) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name."""


class Unchanged:
    """Names and URIs pass as they are; for a single server."""

    def plain(self, server: str, name: str) -> str:
        """The name."""
        return name

    def names(self, wanted: Sequence[tuple[Key, str]]) -> dict[Key, str]:
        """The names."""
        return dict(wanted)


class Prefixed:
    """`{server}_{name}`, for tools and prompts; whoever had a name first keeps it."""

    def __init__(self, limit: int, corner: Corner, reserved: Collection[str] = ()) -> None:
        self._limit = limit
        self._corner = corner
        self._reserved = reserved

    def plain(self, server: str, name: str) -> str:
        """The name after the server's."""
        return public_name(server, name, self._limit)

    def names(self, wanted: Sequence[tuple[Key, str]]) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name."""
        plain = dict(wanted)
        names = allot(list(plain), self._limit, self._corner, plain, self._reserved)
        self._corner.use(names.values())
        return names
