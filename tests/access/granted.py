"""Access by grants, as simple as tests need it: `[!]SERVER:WHAT` with `*` as the only wildcard."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, IdentitySource, Role, Visibility
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


# Alice sees the bank and Bob the files; Carol sees both, as does the Alice of another tenant.
ALICE = Identity(tenant="acme", principal="alice", grants=("bank:*",), source=IdentitySource.API_KEY)
BOB = Identity(tenant="acme", principal="bob", grants=("files:*",), source=IdentitySource.API_KEY)
CAROL = Identity(tenant="acme", principal="carol", grants=("*:*",), source=IdentitySource.API_KEY)
OTHER_ALICE = Identity(tenant="other", principal="alice", grants=("*:*",), source=IdentitySource.API_KEY)
# Dave sees both, but may not pay.
DAVE = Identity(
    tenant="acme", principal="dave", grants=("*:*", "!bank:pay_invoice"), source=IdentitySource.API_KEY
)
IDENTITIES = {"alice": ALICE, "bob": BOB, "carol": CAROL, "dave": DAVE, "other alice": OTHER_ALICE}
PRINCIPAL_HEADER = "X-Principal"


class HeaderAuthenticator:
    """Trusts a header that names one of the identities; without it a client is the local user."""

    def identify_http(self, headers: Mapping[bytes, bytes]) -> Identity:
        name = headers.get(PRINCIPAL_HEADER.lower().encode())
        return LOCAL_IDENTITY if name is None else IDENTITIES[name.decode()]

    def identify_stdio(self) -> Identity:
        return ALICE
