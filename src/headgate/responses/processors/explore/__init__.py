"""Tells what a result consists of."""

from headgate.responses.processors.explore.explore import ExploreProcessor, explored_blocks

__all__ = ["ExploreProcessor", "explored_blocks"]
