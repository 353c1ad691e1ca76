"""`headgate listing`: what clients would see of the tools, in every mode, without serving."""

from headgate.app.listing.report import (
    ListedTool,
    Listing,
    ModeCount,
    NamedTool,
    Overview,
    Report,
    ServerCount,
)
from headgate.app.listing.survey import Wish, survey
from headgate.app.listing.wording import printed

__all__ = [
    "ListedTool",
    "Listing",
    "ModeCount",
    "NamedTool",
    "Overview",
    "Report",
    "ServerCount",
    "Wish",
    "printed",
    "survey",
]
