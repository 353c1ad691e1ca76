"""MCP servers on the official SDK, of either protocol era."""
