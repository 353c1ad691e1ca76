"""One memory of names for all kinds: each kind has a corner of its own, so that none is taken for another."""

from collections.abc import Collection, Mapping

from headgate.catalog.names import Key, Owners


class Corner:
    """The names of one kind; implements Owners."""

    def __init__(self, owners: Owners, prefix: str, others: list["Corner"]) -> None:
        """`others` are all corners of this memory; this one joins them."""
        self._owners = owners
        self._prefix = prefix
        self._others = others
        self._used: Collection[str] = ()
        others.append(self)

    def owner(self, public_name: str) -> Key | None:
        """Whose the name is."""
        return self._owners.owner(self._prefix + public_name)

    def claim(self, names: Mapping[str, Key]) -> None:
        """Remember who owns each of these names now."""
        if names:
            # The memory forgets what nobody asked for the longest. What the other kinds still use must not be
            # pushed out by a server that lists new names all the time.
            for corner in self._others:
                corner.touch()
            self._owners.claim({self._prefix + name: key for name, key in names.items()})

    def use(self, names: Collection[str]) -> None:
        """These names are in use from now on, and no others."""
        self._used = names

    def touch(self) -> None:
        """Ask for what is in use, so that it is not forgotten."""
        for name in self._used:
            self.owner(name)
