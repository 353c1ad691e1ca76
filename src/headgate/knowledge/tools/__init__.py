"""The knowledge tools: semantic_search, find_vendor_info, list_sources, get_chunk, get_chunks, neighbours."""

from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.failures import failure
from headgate.knowledge.tools.knowledge import KnowledgeTools, Usage
from headgate.knowledge.tools.semantic_search import Search

__all__ = ["DEFINITIONS", "KnowledgeTools", "Search", "Usage", "failure"]
