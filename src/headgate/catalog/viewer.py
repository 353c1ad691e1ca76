"""Who looks at a listing."""

import msgspec

from headgate.domain.call import LOCAL, Caller, Owner, circle_of
from headgate.domain.profile import PLAIN, Profile
from headgate.wire.eras import Era


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """A client that lists, as far as what it sees depends on it."""

    era: Era
    caller: Caller = LOCAL
    # None in the stateless era.
    owner: Owner | None = None
    profile: Profile = PLAIN

    @property
    def circle(self) -> str:
        """Those who see the same tools as it does, found ones too."""
        return circle_of(self.owner, self.caller)
