"""Pure text analysis and ranking algorithms, shared by catalog, results and knowledge."""
