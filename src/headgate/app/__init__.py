"""Joins the edges: builds everything that the settings ask for, runs it, and takes it down again."""

from headgate.app.reload import warn
from headgate.app.serving import serve

__all__ = ["serve", "warn"]
