"""The gateway as the server side sees it: one method for each kind of request."""

from headgate.catalog.listing_variant import ListingContext
from headgate.domain.item import ItemKind
from headgate.gateway.calls import ToolCalls
from headgate.gateway.interfaces import ClientListings
from headgate.gateway.resources import ResourceRequests


class Gateway:
    """Joins the paths of calls, of other requests and of listings; each raises HeadgateError."""

    def __init__(self, calls: ToolCalls, resources: ResourceRequests, listings: ClientListings) -> None:
        self._listings = listings
        self.call = calls.call
        self.get_prompt = resources.get_prompt
        self.read_resource = resources.read_resource
        self.complete = resources.complete
        self.forward = resources.forward
        self.subscribe = resources.subscribe
        self.unsubscribe = resources.unsubscribe

    async def list(self, kind: ItemKind, cursor: str | None, listing_context: ListingContext) -> bytes:
        """One page of what the client sees of a kind; raises InvalidCursor."""
        return await self._listings.list_page(kind, cursor, listing_context)
