"""How the items of one kind get their public names."""

from collections.abc import Collection, Sequence
from typing import Protocol

from headgate.catalog.memory import Corner
from headgate.catalog.names import RESERVED, Key, Wish, accepted, allot, public_name


class Naming(Protocol):
    """Gives each item of a kind a public name."""

    def plain(self, server: str, name: str) -> str:
        """What it is called before collisions are looked at; worked out once for each item."""

    def given(self, name: str) -> str:
        """What it is called when its operator calls it so."""

    def names(self, wanted: Sequence[tuple[Key, str]], wish: Wish, *, anew: bool) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name.

        `wish` tells the plain name of any item; `anew` says that it may tell another one than before.
        """


class Unchanged:
    """Names and URIs pass as they are; for a single server."""

    def __init__(self, limit: int) -> None:
        """`limit` is for names that an operator chose."""
        self._limit = limit

    def plain(self, server: str, name: str) -> str:
        """The name."""
        return name

    def given(self, name: str) -> str:
        """The name in the letters that every client accepts."""
        return accepted(name, self._limit)

    def names(self, wanted: Sequence[tuple[Key, str]], wish: Wish, *, anew: bool) -> dict[Key, str]:
        """The names; a tool that was renamed to what another is called keeps its own."""
        # Also of tools that are renamed themselves: they may have to keep it.
        own = {*RESERVED, *(key[1] for key, _ in wanted)}
        names: dict[Key, str] = {}
        taken: set[str] = set()
        for key, name in wanted:
            names[key] = key[1] if name in own or name in taken else name
            taken.add(names[key])
        return names


class Prefixed:
    """`{server}_{name}`, for tools and prompts; whoever had a name first keeps it."""

    def __init__(self, limit: int, corner: Corner, reserved: Collection[str] = ()) -> None:
        self._limit = limit
        self._corner = corner
        self._reserved = reserved
        # The plain names, and those that were given for them.
        self._known: tuple[dict[Key, str], dict[Key, str]] = {}, {}

    def plain(self, server: str, name: str) -> str:
        """The name after the server's."""
        return public_name(server, name, self._limit)

    def given(self, name: str) -> str:
        """The name in the letters that every client accepts."""
        return accepted(name, self._limit)

    def names(self, wanted: Sequence[tuple[Key, str]], wish: Wish, *, anew: bool) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name; those with a hash are looked at `anew`."""
        plain = dict(wanted)
        before, given = self._known
        # What has a name keeps it: to ask the memory for thousands at every change takes a while.
        names = {key: given[key] for key, name in plain.items() if before.get(key) == name}
        if anew:
            # Whoever had the name of one with a hash may be called otherwise now.
            names = {key: name for key, name in names.items() if name == plain[key]}
        new = [key for key in plain if key not in names]
        names |= allot(new, self._limit, self._corner, plain, {*self._reserved, *names.values()}, wish)
        self._known = plain, names
        self._corner.use(names.values())
        return names
