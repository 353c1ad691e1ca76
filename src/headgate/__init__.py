"""Headgate: one gateway between AI agents and every MCP server they use."""

__version__ = "0.1.0"
