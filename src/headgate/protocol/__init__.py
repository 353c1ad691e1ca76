"""MCP on the wire, as bytes: JSON-RPC, the two protocol eras, headers, framing and rmcp metadata.

In come bytes and values, out come bytes and values; nothing is sent or stored here. Imports nothing but
msgspec and the standard library.
"""
