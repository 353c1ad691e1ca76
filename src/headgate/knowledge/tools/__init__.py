"""The knowledge tools: semantic_search, find_vendor_info, list_sources, get_chunk, get_chunks, neighbours."""
