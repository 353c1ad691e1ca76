"""The tools of the document server.

In come arguments of tool calls; out go JSON answers within a token budget. It does no I/O; it may import
`knowledge.search`, `knowledge.graph` and the Protocols.
"""
