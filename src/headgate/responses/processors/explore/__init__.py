"""Tells what a result consists of."""

from headgate.responses.processors.explore.explore import ExploreProcessor

__all__ = ["ExploreProcessor"]
