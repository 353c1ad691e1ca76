"""Pages through a result."""

from headgate.responses.processors.read.read import ReadProcessor, page
from headgate.responses.processors.read.rows import rows_page

__all__ = ["ReadProcessor", "page", "rows_page"]
