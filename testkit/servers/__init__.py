"""MCP servers without the SDK, each a process: they list, answer, record and misbehave on command.

Comes in: options, and calls whose arguments say what to do. Goes out: answers, and a record of what happened.
`testkit.upstreams.server_command` gives the command of one; `jsonrpc` is what the small ones share.
"""
