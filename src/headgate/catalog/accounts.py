"""What each server told of one kind: to clients without capabilities, and to others as far as it differs."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from headgate.catalog.hints import NO_HINT, CacheHint
from headgate.catalog.offer import Offer, Told, same
from headgate.domain.profile import PLAIN, Profile

_Account = TypeVar("_Account")


class Accounts:
    """By profile and server; a profile to which a server told nothing of its own has the plain account."""

    def __init__(self) -> None:
        self._plain: dict[str, Told] = {}
        # None stands for an account that is the same as the plain one, and stays so until it is told again.
        self._own: dict[Profile, dict[str, Told | None]] = {}
        self._hints: dict[Profile, dict[str, CacheHint]] = {}

    def keep(self, servers: Sequence[str]) -> None:
        """Forget every other server."""
        _keep(self._plain, servers)
        for own in self._own.values():
            _keep(own, servers)
        for hints in self._hints.values():
            _keep(hints, servers)

    def put(self, server: str, profile: Profile, told: Told, hint: CacheHint) -> bool:
        """Replace one account; tells whether the profile's clients see a difference."""
        self._hints.setdefault(profile, {})[server] = hint
        before = self.of(server, profile)
        if profile == PLAIN:
            self._plain[server] = told
            self._share(server, told)
        else:
            plain = self._plain.get(server)
            shared = plain is not None and same(plain, told)
            self._own.setdefault(profile, {})[server] = None if shared else told
        return not same(before or {}, told)

    def _share(self, server: str, plain: Told) -> None:
        for accounts in self._own.values():
            told = accounts.get(server)
            if told is not None and same(told, plain):
                accounts[server] = None

    def forget(self, profile: Profile) -> bool:
        """Drop a profile's own accounts; tells whether there was one that differed."""
        self._hints.pop(profile, None)
        return any(told is not None for told in self._own.pop(profile, {}).values())

    def has_own(self, server: str, profile: Profile) -> bool:
        """Whether the server told this to clients of that very profile."""
        return server in (self._plain if profile == PLAIN else self._own.get(profile, {}))

    def differs(self, profile: Profile) -> bool:
        """Whether its clients see anything else than clients without capabilities."""
        return any(told is not None for told in self._own.get(profile, {}).values())

    @property
    def alike(self) -> bool:
        """Whether all clients see the same."""
        return all(told is None for accounts in self._own.values() for told in accounts.values())

    def has_any(self, server: str) -> bool:
        """Whether the server told this to anybody."""
        return server in self._plain or any(server in accounts for accounts in self._own.values())

    def of(self, server: str, profile: Profile) -> Told | None:
        """What clients of that profile see of the server, if it has told anything."""
        own = self._own.get(profile, {}).get(server)
        return self._plain.get(server) if own is None else own

    def all_of(self, server: str) -> Iterator[Told]:
        """Every account of the server that differs from the others, the plain one first."""
        if server in self._plain:
            yield self._plain[server]
        for accounts in self._own.values():
            told = accounts.get(server)
            if told is not None:
                yield told

    def known(self, server: str) -> dict[str, Offer]:
        """Everything that the server offers, by the text of its definition."""
        return {
            offer.source.definition.text: offer for told in self.all_of(server) for offer in told.values()
        }

    def hint(self, server: str, profile: Profile) -> CacheHint:
        """How long the profile's account of the server may be kept."""
        plain = self._hints.get(PLAIN, {}).get(server, NO_HINT)
        return self._hints.get(profile, {}).get(server, plain)


def _keep(accounts: dict[str, _Account], servers: Sequence[str]) -> None:
    for server in accounts.keys() - set(servers):
        del accounts[server]
