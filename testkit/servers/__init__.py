"""MCP servers without the SDK, each a process: they list, answer and misbehave as they are told to.

`python -m testkit.servers.NAME` starts one; those of the standard library alone start in 20 ms.
"""
