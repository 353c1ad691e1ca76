"""What a server can list: tools, prompts, resources, templates, each with its own words in the protocol."""

from enum import Enum


class Kind(Enum):
    """One kind of thing in a listing: the method that lists it, its member in the result, its key."""

    TOOLS = ("tools/list", "tools", "name", "tools")
    PROMPTS = ("prompts/list", "prompts", "name", "prompts")
    RESOURCES = ("resources/list", "resources", "uri", "resources")
    TEMPLATES = ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources")

    def __init__(self, list_method: str, member: str, key: str, capability: str) -> None:
        self.list_method = list_method
        # Where the list stands in the result.
        self.member = member
        # What tells one from the other.
        self.key = key
        # Which capability of the server it belongs to.
        self.capability = capability

    @property
    def changed(self) -> str:
        """The notification that says that the list is out of date; templates go with resources."""
        return f"notifications/{self.capability}/list_changed"


LISTED_BY = {kind.list_method: kind for kind in Kind}

# Which member of params names what a request is about; the Mcp-Name header repeats it.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
