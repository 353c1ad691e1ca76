"""One item that a server offers."""

from headgate.catalog.names import Key
from headgate.domain.item import Item, Source, published
from headgate.domain.kind import Kind


class Offer:
    """An item with what is worked out once, though every server that connects has them all listed again."""

    __slots__ = ("_kind", "_published", "_truncated", "key", "plain_name", "source")

    def __init__(
        self, kind: Kind, server: str, source: Source, plain_name: str, *, truncated: bool = False
    ) -> None:
        """`truncated` is whether results of the item may be."""
        self._kind = kind
        self._truncated = truncated
        self.source = source
        self.key: Key = (server, source.name)
        self.plain_name = plain_name
        self._published: Item | None = None

    def published(self, name: str) -> Item:
        """The item as clients see it under that name."""
        if self._published is None or self._published.public_name != name:
            self._published = published(self._kind, self.key[0], self.source, name, truncated=self._truncated)
        return self._published


# What one server told at one time, in its order.
Told = dict[Key, Offer]


def same(one: Told, other: Told) -> bool:
    """Whether clients see no difference; an offer that did not change is the same object."""
    return one is other or list(one.values()) == list(other.values())
