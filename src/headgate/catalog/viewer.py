"""Who looks at a listing."""

import msgspec

from headgate.domain.call import LOCAL, Caller, Owner, Request, circle_of
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """A client that lists, as far as what it sees depends on it."""

    era: Era
    caller: Caller = LOCAL
    # None in the stateless era.
    owner: Owner | None = None
    profile: Profile = PLAIN
    # What the client calls itself.
    client: str = ""
    # What the path that it came by stands for; None where that says nothing.
    mode: Mode | None = None

    @property
    def visibility_group(self) -> str:
        """Those who see the same tools as it does, found ones too."""
        return circle_of(self.owner, self.caller)


def viewer_of(request: Request) -> Viewer:
    """Whoever sent the request, when it lists."""
    return Viewer(
        era=Era.STATELESS if request.owner is None else Era.HANDSHAKE,
        caller=request.caller,
        owner=request.owner,
        profile=request.profile,
        client=request.client,
        mode=request.listing,
    )
