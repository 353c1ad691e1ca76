"""The tools that read stored results: proxy_filter, proxy_search, proxy_explore, proxy_read, proxy_query."""

from headgate.responses.tools.arguments import Wanted, wanted
from headgate.responses.tools.definitions import DEFINITIONS, STUBS
from headgate.responses.tools.names import NAMES

__all__ = ["DEFINITIONS", "NAMES", "STUBS", "Wanted", "wanted"]
