"""Where clients connect: streamable HTTP of both eras, legacy SSE and stdio.

In: bytes of a connection. Out: one `McpRequest` with its `Identity` for the gateway, and its reply as bytes.
Identity is established here, once for each request; sessions, streams and subscriptions belong to it.
It may import gateway, the rules that own listing and error types, protocol and domain.
"""
