"""Every combination that is run: which requirement set, and the server behind Headgate."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from testkit.conformance_server.eras import Era

OLD: Final = "2025-11-25"
NEW: Final = "2026-07-28"


class Side(Enum):
    """Which of the suite's sides the gateway is judged on."""

    SERVER = "server"
    CLIENT = "client"


class Carrier(Enum):
    """How the gateway reaches the fixture."""

    HTTP = "http"
    STDIO = "stdio"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a requirement set through Headgate."""

    name: str
    revision: str
    what: str
    side: Side = Side.SERVER
    carrier: Carrier = Carrier.HTTP
    era: Era = Era.BOTH


_BOTH: Final = "a server of both eras"
_HANDSHAKE: Final = "a server of the handshake era"
_STATELESS: Final = "a server of the stateless era"

# The gateway speaks the stateless era to a server that has both, so each era is also run alone.
_ALL: Final = (
    Cell("2025/http", OLD, f"{_BOTH}, HTTP"),
    Cell("2026/http", NEW, f"{_BOTH}, HTTP"),
    Cell("2025/handshake", OLD, f"{_HANDSHAKE}, HTTP", era=Era.HANDSHAKE),
    Cell("2025/stateless", OLD, f"{_STATELESS}, HTTP", era=Era.STATELESS),
    Cell("2026/handshake", NEW, f"{_HANDSHAKE}, HTTP", era=Era.HANDSHAKE),
    Cell("2026/stateless", NEW, f"{_STATELESS}, HTTP", era=Era.STATELESS),
    Cell("2025/stdio", OLD, f"{_BOTH}, stdio", carrier=Carrier.STDIO),
    Cell("2026/stdio", NEW, f"{_BOTH}, stdio", carrier=Carrier.STDIO),
    Cell("2025/stdio-handshake", OLD, f"{_HANDSHAKE}, stdio", carrier=Carrier.STDIO, era=Era.HANDSHAKE),
    Cell("2026/stdio-handshake", NEW, f"{_HANDSHAKE}, stdio", carrier=Carrier.STDIO, era=Era.HANDSHAKE),
    Cell("2025/client", OLD, "the suite's own servers", side=Side.CLIENT),
    Cell("2026/client", NEW, "the suite's own servers", side=Side.CLIENT),
)
CELLS: Final = {cell.name: cell for cell in _ALL}
