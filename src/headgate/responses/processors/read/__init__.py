"""Pages through a result."""

from headgate.responses.processors.read.read import ReadProcessor, page

__all__ = ["ReadProcessor", "page"]
