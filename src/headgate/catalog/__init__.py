"""What exists, its public names, and which part of it each client sees and finds.

In: the listings of servers, the operator's curations, queries. Out: items by name or URI, listings in every
mode, search results. Imports `search`, `schema`, `protocol`, `domain` and `event_loop`, and does no I/O.
"""
