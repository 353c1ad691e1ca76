"""The rule while there are no keys: whoever reaches the gate is the local user and may call everything."""

from headgate.domain.call import Caller
from headgate.domain.item import Item


class LocalAccess:
    """Lets the local user through; the door has already refused everybody who is not on this machine."""

    def admit(self, caller: Caller) -> None:
        """The local user is not limited."""

    def permit(self, caller: Caller, item: Item) -> None:
        """The local user may use everything."""

    def sees_all(self, caller: Caller) -> bool:
        """Nothing is hidden from the local user."""
        return True

    def may_see(self, caller: Caller, item: Item) -> bool:
        """The local user sees everything."""
        return True
