"""Keeps some fields of JSON, or leaves some out."""

from headgate.responses.processors.projection.projection import ProjectionProcessor

__all__ = ["ProjectionProcessor"]
