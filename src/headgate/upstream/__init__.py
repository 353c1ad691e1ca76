"""Calls go out: children, HTTP servers, in-process servers, and the fleet that keeps them alive."""
