"""The paths of the MCP endpoints, and the listing mode that each stands for."""

from headgate.domain.listing_mode import ListingMode

MCP = "/mcp"
SSE = "/sse"
# Where clients of the stream send to.
MESSAGES = "/messages"
# No mode may ever be called so: it is where older clients look for the stream.
MCP_SSE = f"{MCP}/sse"


def _with_modes(path: str) -> dict[str, ListingMode]:
    # Some clients put a slash at the end of every address.
    return {f"{path}/{mode}{slash}": mode for mode in ListingMode for slash in ("", "/")}


# Beside the plain path, one for each mode.
MCP_PATHS = {MCP: None, f"{MCP}/": None, **_with_modes(MCP)}
SSE_PATHS = {SSE: None, f"{SSE}/": None, MCP_SSE: None, f"{MCP_SSE}/": None, **_with_modes(SSE)}
# The listing mode of each path; None for the plain path.
LISTING_MODES = MCP_PATHS | SSE_PATHS
