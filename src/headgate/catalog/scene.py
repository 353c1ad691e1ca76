"""What clients see alike: those of one profile, in one mode and dialect."""

import hashlib
from typing import Final

import msgspec

from headgate.catalog.dialects.dialect import Dialect
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era

# What views are made for; in the other modes clients see a few tools each.
VIEWED: Final = (Mode.AUTO, Mode.FULL, Mode.PARTITIONED, Mode.SLIM, Mode.BUDGET)


class Sight(msgspec.Struct, frozen=True):
    """What clients see the same with, apart from what servers show them."""

    mode: Mode
    dialect: Dialect = Dialect.PLAIN
    era: Era = Era.STATELESS
    # The most tools that the client can handle.
    most: int | None = None


class Scene(msgspec.Struct, frozen=True):
    """Clients of one profile with one sight."""

    profile: Profile
    sight: Sight

    @property
    def viewed(self) -> bool:
        """Whether a view is made for it."""
        return self.sight.mode in VIEWED

    @property
    def label(self) -> str:
        """What its listing is called where it is shown to people."""
        sight = self.sight
        parts = [sight.mode.value, sight.era.value]
        if sight.dialect is not Dialect.PLAIN:
            parts.append(sight.dialect.value)
        if sight.most is not None:
            parts.append(f"{sight.most} tools")
        if self.profile != PLAIN:
            parts.append(",".join(sorted(self.profile.answers)) or "capabilities")
        return " ".join(parts)

    @property
    def variant(self) -> str:
        """What tells it apart from others of the same label: all that its clients declare."""
        if self.profile == PLAIN:
            return ""
        return hashlib.blake2b(self.profile.capabilities, digest_size=4).hexdigest()
