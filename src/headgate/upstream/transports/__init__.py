"""Transports: stdio, streamable HTTP, HTTP+SSE and servers inside the gateway process.

In come outgoing requests and notifications, out go answers; other messages of the server go to the
notification router. May import `domain`, `protocol`, `upstream.http` and the modules of `upstream` below the
handshake.
"""
