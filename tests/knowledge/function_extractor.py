"""An entity extractor made of a function."""

from collections.abc import Callable, Sequence

from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.interfaces import ExtractedGraph


class FunctionExtractor:
    """Extracts what the function finds; without one, nothing."""

    def __init__(
        self,
        function: Callable[[Sequence[NewChunk]], ExtractedGraph] = lambda chunks: ((), ()),
        version: str = "",
    ) -> None:
        self.version = version
        self.extract = function
