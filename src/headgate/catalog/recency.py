"""Which profiles of clients were used last."""

from headgate.domain.profile import PLAIN, Profile

# Clients declare what their maker built in, so a gate meets a handful; each may cost a listing of its own.
MOST_PROFILES = 16


class Recency:
    """The profiles that have listings of their own, the longest unused first."""

    def __init__(self) -> None:
        self._known: dict[Profile, None] = {}

    def add(self, profile: Profile) -> Profile | None:
        """Count a profile in; gives the one that has to go for it, if any."""
        if profile == PLAIN:
            return None
        self._known.pop(profile, None)
        self._known[profile] = None
        if len(self._known) <= MOST_PROFILES:
            return None
        oldest = next(iter(self._known))
        del self._known[oldest]
        return oldest

    def use(self, profile: Profile) -> None:
        """It was used just now, if it is one of them."""
        if profile in self._known:
            self.add(profile)

    def forget(self, profile: Profile) -> None:
        """It has no listings of its own any more."""
        self._known.pop(profile, None)
