"""What the tools that read stored results are called."""

from typing import Final

FILTER: Final = "proxy_filter"
SEARCH: Final = "proxy_search"
EXPLORE: Final = "proxy_explore"
READ: Final = "proxy_read"
QUERY: Final = "proxy_query"
# In the order in which they are listed and named.
NAMES: Final = (SEARCH, FILTER, EXPLORE, READ, QUERY)
