"""A memory of names that lasts as long as one test."""

from collections.abc import Mapping

from headgate.catalog.catalog import Catalog
from headgate.catalog.names import Owners
from headgate.catalog.viewer import Viewer
from headgate.domain.call import LOCAL
from headgate.domain.kind import Kind
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era


class RememberedOwners:
    """Implements the memory that the catalog asks for."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str]] = {}

    def owner(self, public_name: str) -> tuple[str, str] | None:
        return self.names.get(public_name)

    def claim(self, names: Mapping[str, tuple[str, str]]) -> None:
        self.names.update(names)


def catalog_of(
    *servers: str,
    owners: Owners | None = None,
    limit: int = 60,
    prefixed: bool = True,
    page_bytes: int = 256 * 1024,
) -> Catalog:
    """An empty catalog that expects these servers in this order."""
    catalog = Catalog(
        name_limit=limit, prefixed=prefixed, page_bytes=page_bytes, owners=owners or RememberedOwners()
    )
    catalog.order(servers)
    return catalog


def tool(name: str, description: str = "x") -> bytes:
    """A definition as an upstream sends it."""
    return f'{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object"}}}}'.encode()


def target(catalog: Catalog, name: str) -> tuple[str, str]:
    """The server and tool that a call of `name` reaches."""
    found = catalog.resolve(Kind.TOOLS, name, LOCAL)
    return found.server, found.name


def public(catalog: Catalog, server: str, name: str) -> str:
    """The public name of a tool."""
    return catalog.resolve(Kind.TOOLS, f"{server}:{name}", LOCAL).public_name


def first_page(
    catalog: Catalog, kind: Kind = Kind.TOOLS, profile: Profile = PLAIN, era: Era = Era.HANDSHAKE
) -> bytes:
    """The members of the first page of a listing."""
    return catalog.page(kind, None, Viewer(profile=profile, era=era))
