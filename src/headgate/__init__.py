"""Headgate: one gate between an AI agent and every MCP server it uses."""

__version__ = "0.1.0"
