"""The search modes of proxy_search: regex, BM25, fuzzy, context and structure."""
