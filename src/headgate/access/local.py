"""Access rules without keys: every request is the local user's, who may see and call everything."""

from collections.abc import Mapping

from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, Visibility
from headgate.domain.item import Item


class LocalAuthenticator:
    """Takes every request for the local user's; requests from other machines were refused before."""

    def identify_http(self, headers: Mapping[bytes, bytes]) -> Identity:
        """The identity of an HTTP request."""
        return LOCAL_IDENTITY

    def identify_stdio(self) -> Identity:
        """The identity of the program that started the gateway."""
        return LOCAL_IDENTITY


class LocalAccess:
    """Neither limits nor restricts the local user."""

    def admit(self, caller: Identity) -> None:
        """Count the request; never raises."""

    def permit(self, caller: Identity, item: Item) -> None:
        """Check that the caller may use the item; never raises."""

    def visible(self, identity: Identity) -> Visibility:
        """What the identity sees of the catalog: everything."""
        return EVERYTHING
