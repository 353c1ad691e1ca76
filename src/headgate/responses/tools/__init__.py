"""The tools that read stored results: proxy_filter, proxy_search, proxy_explore, proxy_read, proxy_query."""
