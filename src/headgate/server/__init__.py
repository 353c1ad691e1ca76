"""Clients come in: stdio, streamable HTTP of both eras, legacy SSE."""
