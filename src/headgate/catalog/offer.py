"""One tool that a server offers."""

from headgate.catalog.names import Key, public_name
from headgate.domain.tool import Tool, UpstreamTool, published


class Offer:
    """A tool with what is worked out once, though every server that connects has them all listed again."""

    __slots__ = ("_published", "key", "plain_name", "source")

    def __init__(self, server: str, source: UpstreamTool, name_limit: int) -> None:
        self.source = source
        self.key: Key = (server, source.name)
        self.plain_name = public_name(server, source.name, name_limit)
        self._published: Tool | None = None

    def published(self, name: str) -> Tool:
        """The tool as clients see it under that name."""
        if self._published is None or self._published.public_name != name:
            self._published = published(self.key[0], self.source, name)
        return self._published
