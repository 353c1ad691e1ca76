"""Access by grants, as simple as tests need it: `[!]SERVER:WHAT` with `*` as the only wildcard."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from headgate.domain.identity import EVERYTHING, Identity, IdentitySource, Role, Visibility
from headgate.domain.item import Item, ItemKind

_WHAT = {ItemKind.TOOLS: "", ItemKind.PROMPTS: "prompt/"}


class GrantedVisibility(msgspec.Struct, frozen=True):
    """Sees what one of the grants covers and none denies."""

    grants: tuple[str, ...]

    @property
    def is_unrestricted(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return " ".join(self.grants)

    def allows(self, item: Item) -> bool:
        name = f"{item.server}:{_WHAT.get(item.kind, 'resource/')}{item.name}"
        denied = any(grant[:1] == "!" and fnmatchcase(name, grant[1:]) for grant in self.grants)
        return not denied and any(fnmatchcase(name, grant) for grant in self.grants)

    def allows_server(self, server: str) -> bool:
        return any(fnmatchcase(server, grant.partition(":")[0]) for grant in self.grants)


def visible(identity: Identity) -> Visibility:
    """Everything for administrators and recorded operations, otherwise what is granted."""
    if identity.role is Role.ADMIN or identity.source is IdentitySource.RECORD:
        return EVERYTHING
    return GrantedVisibility(identity.grants)


class GrantedAccess:
    """Shows each identity what its grants cover, and limits nothing."""

    def admit(self, caller: Identity) -> None:
        pass

    def permit(self, caller: Identity, item: Item) -> None:
        pass

    def visible(self, identity: Identity) -> Visibility:
        return visible(identity)


class HeaderAuthenticator:
    """Believes an `x-principal` header: one of the identities that it knows, or else the local user."""

    def __init__(self, *identities: Identity, local: Identity) -> None:
        self._identities = {identity.principal.encode(): identity for identity in identities}
        self._local = local

    def identify_http(self, headers: Mapping[bytes, bytes]) -> Identity:
        return self._identities.get(headers.get(b"x-principal", b""), self._local)

    def identify_stdio(self) -> Identity:
        return self._local
