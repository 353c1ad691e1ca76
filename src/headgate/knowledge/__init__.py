"""The team's own documents: hybrid search over them, and the graph of those they speak of."""
