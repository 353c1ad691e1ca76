"""expandSchema: gives back what a listing leaves out of a tool, whole or part by part."""

from headgate.catalog.expansion.expand import ExpandSchema, Tools

__all__ = ["ExpandSchema", "Tools"]
