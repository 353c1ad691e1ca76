"""The rule while there are no keys: whoever reaches the gate is the local user and may call everything."""

from headgate.domain.item import Item
from headgate.domain.mcp_request import Identity


class LocalAccess:
    """Lets the local user through; the door has already refused everybody who is not on this machine."""

    def admit(self, caller: Identity) -> None:
        """The local user is not limited."""

    def permit(self, caller: Identity, item: Item) -> None:
        """The local user may use everything."""

    def sees_all(self, caller: Identity) -> bool:
        """Nothing is hidden from the local user."""
        return True

    def may_see(self, caller: Identity, item: Item) -> bool:
        """The local user sees everything."""
        return True
