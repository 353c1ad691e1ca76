"""Connections to MCP servers: one supervisor for each server, and the fleet of all.

In come calls that access and delivery let through, out go answers of servers or errors that tell what may
have happened; listings and changes go to the consumer that `app` passes in. May import `domain`, `protocol`,
`event_loop`, and values of `catalog` and `input_requests`; imports no other edge.
"""
