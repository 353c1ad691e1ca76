"""Large results: truncation, storage rules, and the tools that read stored results.

In: tool results of upstreams and calls of the `proxy_*` tools. Out: excerpts, pages, search hits and the
rules of the result store; no I/O of its own. May import `schema`, `search`, `protocol` and `domain`.
"""
