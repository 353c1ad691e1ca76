"""Identity: the tenant and principal behind a request, and what it may see of the catalog."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from headgate.domain.item import Item
from headgate.domain.listing_mode import ListingMode

LOCAL_PRINCIPAL = "local"


class Role(StrEnum):
    """A permission besides calling tools."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    AGENT = "agent"


class IdentitySource(StrEnum):
    # Stdio, or an open endpoint on the loopback address.
    LOCAL = "local"
    API_KEY = "api_key"
    OAUTH = "oauth"
    # Restored from the record of a call that was admitted and resolved before.
    RECORD = "record"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request; created once where the request enters, and never changed.

    Raises ValueError for a tenant or principal with control characters, which separate them in keys.
    """

    tenant: str = ""
    # An API key's id, or the issuer, subject and client of OAuth; never a session id.
    principal: str = LOCAL_PRINCIPAL
    role: Role = Role.AGENT
    grants: tuple[str, ...] = ()
    key_id: str = ""
    source: IdentitySource = IdentitySource.LOCAL
    # The listing mode configured for it; None leaves the choice to the gateway's own settings.
    listing: ListingMode | None = None

    def __post_init__(self) -> None:
        if not (self.tenant + self.principal).isprintable():
            raise ValueError("a tenant or principal has no control characters")

    @property
    def is_authenticated(self) -> bool:
        """Whether it is anything but the local user."""
        return self.principal != LOCAL_PRINCIPAL or bool(self.tenant)

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and principal: the outer key of everything that the identity owns."""
        return self.tenant, self.principal

    @property
    def owner_id(self) -> str:
        """The same as one text, for keys that are texts."""
        name = f"principal {self.principal}"
        return f"tenant {self.tenant}\n{name}" if self.tenant else name

    def owned_purpose(self, purpose: str) -> str:
        """The purpose of a signed or sealed token that only this owner can use.

        For the local user it is the plain purpose, so that tokens issued before there were identities
        stay valid.
        """
        return f"{purpose}\n{self.owner_id}" if self.is_authenticated else purpose


LOCAL_IDENTITY = Identity(role=Role.ADMIN)


def recorded_identity(tenant: str, principal: str) -> Identity:
    """The owner of a recorded operation, for calls that complete or undo it.

    Its tools were visible to the owner when the operation was recorded, so nothing is hidden from it.
    """
    return Identity(tenant=tenant, principal=principal, source=IdentitySource.RECORD)


class Visibility(Protocol):
    """What an identity sees of the catalog: hashable, and equal where two identities see the same."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether nothing is hidden."""

    @property
    def label(self) -> str:
        """A name that is the same in every process; empty where nothing is hidden."""

    def allows(self, item: Item) -> bool:
        """Whether the tool, prompt, resource or template exists for the identity."""

    def allows_server(self, server: str) -> bool:
        """Whether the server exists for the identity."""

    def __hash__(self) -> int: ...


class _Unrestricted(msgspec.Struct, frozen=True):
    is_unrestricted: bool = True
    label: str = ""

    def allows(self, item: Item) -> bool:
        return True

    def allows_server(self, server: str) -> bool:
        return True


EVERYTHING: Visibility = _Unrestricted()
# Decides what an identity sees; called once for each call or listing, so implementations cache.
VisibilityRule = Callable[[Identity], Visibility]


def everything_visible(identity: Identity) -> Visibility:
    return EVERYTHING
