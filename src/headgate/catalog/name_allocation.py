"""Allocates distinct public names to the items of one kind; the owner of a name keeps it across restarts."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Protocol

from headgate.catalog.public_names import (
    RESERVED,
    Key,
    NameOwners,
    PlainNameOf,
    allocate_names,
    former_names,
    hash_suffix,
    is_default_name,
    known_prefixes,
    public_name,
    sanitised_name,
)


class Namespace:
    """The names of one kind; implements Owners."""

    def __init__(self, owners: NameOwners, prefix: str, others: list["Namespace"]) -> None:
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
            for namespace in self._others:
                namespace.touch()
            self._owners.claim({self._prefix + name: key for name, key in names.items()})

    def set_in_use(self, names: Collection[str]) -> None:
        """These names are in use from now on, and no others."""
        self._used = names

    def touch(self) -> None:
        """Ask for what is in use, so that it is not forgotten."""
        for name in self._used:
            self.owner(name)


# The name that an operator gave to a tool, as it was written; None for most.
OperatorNameOf = Callable[[Key], str | None]


class NameAllocator(Protocol):
    """Gives each item of a kind a public name."""

    def plain_name(self, server: str, name: str) -> str:
        """What it is called before collisions are looked at; worked out once for each item."""

    def operator_name(self, name: str) -> str:
        """What it is called when its operator calls it so."""

    def allocate(
        self,
        wanted: Sequence[tuple[Key, str]],
        plain_name_of: PlainNameOf,
        configured: Container[str],
        *,
        anew: bool,
    ) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name in the order of the configuration.

        `wish` tells the plain name of any item; `anew` says that it may tell another one than before. Names
        of servers that are not `configured` any more are free.
        """

    def hold(self) -> None:
        """Names without an owner are provisional until `settle`: a server that starts later may get them."""

    def settle(self) -> None:
        """Every name belongs to the item that has it now."""

    def is_provisional(self, key: Key) -> bool:
        """Whether the item may still get another name."""

    def find_former(self, name: str, keys: Sequence[Key], given: OperatorNameOf) -> Key | None:
        """The one of these items that had the name before, if it is certain which one is meant."""


class UnchangedNames:
    """Names and URIs pass as they are; for a single server."""

    def __init__(self, limit: int) -> None:
        """`limit` is for names that an operator chose."""
        self._limit = limit

    def plain_name(self, server: str, name: str) -> str:
        """The name."""
        return name

    def operator_name(self, name: str) -> str:
        """The name in the letters that every client accepts."""
        return sanitised_name(name, self._limit)

    def allocate(
        self,
        wanted: Sequence[tuple[Key, str]],
        plain_name_of: PlainNameOf,
        configured: Container[str],
        *,
        anew: bool,
    ) -> dict[Key, str]:
        """The names; a tool that was renamed to what another is called keeps its own."""
        # Also of tools that are renamed themselves: they may have to keep it.
        own = {*RESERVED, *(key[1] for key, _ in wanted)}
        names: dict[Key, str] = {}
        taken: set[str] = set()
        for key, name in wanted:
            names[key] = key[1] if name in own or name in taken else name
            taken.add(names[key])
        return names

    def hold(self) -> None:
        """There is one server, and nothing to wait for."""

    def settle(self) -> None:
        """Nothing was provisional."""

    def is_provisional(self, key: Key) -> bool:
        """Never."""
        return False

    def find_former(self, name: str, keys: Sequence[Key], given: OperatorNameOf) -> Key | None:
        """None: these names are the server's own."""
        return None


class PrefixedNames:
    """`{server}_{name}`, for tools and prompts; the owner of a name keeps it."""

    def __init__(self, limit: int, namespace: Namespace, reserved: Collection[str] = ()) -> None:
        self._limit = limit
        self._namespace = namespace
        self._reserved = reserved
        # The plain names, and those that were given for them.
        self._known: tuple[dict[Key, str], dict[Key, str]] = {}, {}
        # Names that are not claimed yet, by item; None once all are.
        self._provisional: dict[Key, str] | None = None

    def plain_name(self, server: str, name: str) -> str:
        """The name after the server's."""
        return public_name(server, name, self._limit)

    def operator_name(self, name: str) -> str:
        """The name in the letters that every client accepts."""
        return sanitised_name(name, self._limit)

    def hold(self) -> None:
        """Names without an owner are provisional until `settle`."""
        if self._provisional is None:
            self._provisional = {}

    def settle(self) -> None:
        """Claim the names as they are now."""
        provisional, self._provisional = self._provisional, None
        if provisional:
            self._namespace.claim({name: key for key, name in provisional.items()})

    def is_provisional(self, key: Key) -> bool:
        """Whether an item of a server that is still starting may get its name."""
        return self._provisional is not None and key in self._provisional

    def allocate(
        self,
        wanted: Sequence[tuple[Key, str]],
        plain_name_of: PlainNameOf,
        configured: Container[str],
        *,
        anew: bool,
    ) -> dict[Key, str]:
        """A distinct name for each key, given with its plain name; those with a hash are looked at `anew`."""
        plain = dict(wanted)
        before, given = self._known
        # What has a name keeps it: to ask the memory for thousands at every change takes a while.
        names = {key: given[key] for key, name in plain.items() if before.get(key) == name}
        if anew:
            # Whoever had the name of one with a hash may be called otherwise now.
            names = {key: name for key, name in names.items() if name == plain[key]}
        if self._provisional is not None:
            names = _uncontested(names, plain, self._provisional)
            # Claimed again below, unless they are gone.
            self._provisional = {key: name for key, name in self._provisional.items() if key in names}
        new = [key for key in plain if key not in names]
        reserved = {*self._reserved, *names.values()}
        owners = (
            self._namespace
            if self._provisional is None
            else _ProvisionalOwners(self._namespace, self._provisional)
        )
        names |= allocate_names(new, self._limit, owners, plain, reserved, plain_name_of, configured)
        self._known = plain, names
        self._namespace.set_in_use(names.values())
        return names

    def find_former(self, name: str, keys: Sequence[Key], given: OperatorNameOf) -> Key | None:
        """The item that version 0.1.0, or another limit, gave this name."""
        if name in self._reserved:
            return None
        owner = self._namespace.owner(name)
        if owner is not None:
            # Whoever is meant by the name is known, there or not.
            return owner if owner in keys and self._had(owner, name, given(owner)) else None
        # One search for each server: most of thousands of names begin otherwise.
        servers = {server for server, _ in keys}
        likely = {server for server in servers if name.startswith(known_prefixes(server, self._limit)[-1])}
        found = (
            key
            for key in keys
            if (key[0] in likely or given(key)) and name in former_names(key, self._limit, given(key))
        )
        return next(found, None)

    def _had(self, owner: Key, name: str, given: str | None) -> bool:
        if given is not None:
            return name in former_names(owner, self._limit, given)
        return name.endswith(hash_suffix(*owner)) or is_default_name(owner, name)


class _ProvisionalOwners:
    """The memory of names while servers start: what is claimed is not remembered yet."""

    def __init__(self, namespace: Namespace, provisional: dict[Key, str]) -> None:
        self._namespace = namespace
        self._provisional = provisional

    def owner(self, public_name: str) -> Key | None:
        """Who owned it before the start."""
        return self._namespace.owner(public_name)

    def claim(self, names: Mapping[str, Key]) -> None:
        """These are provisional."""
        self._provisional.update((key, name) for name, key in names.items())


def _uncontested(
    names: Mapping[Key, str], plain: Mapping[Key, str], provisional: Container[Key]
) -> dict[Key, str]:
    """The names without those that a newcomer may get, or that have a hash and may lose it."""
    contested = {name for key, name in plain.items() if key not in names}
    return {
        key: name
        for key, name in names.items()
        if key not in provisional or (name == plain[key] and name not in contested)
    }
