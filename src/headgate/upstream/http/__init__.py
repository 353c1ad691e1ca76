"""HTTP clients for upstream servers: HTTP/1.1 and HTTP/2, name resolution, TLS and proxies.

In come requests as header lines and bodies for one origin, out go responses as streams of bytes. May import
`domain`, `protocol` and the message assembly of `upstream`; knows nothing of MCP methods.
"""
