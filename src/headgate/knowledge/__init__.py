"""The document server: hybrid search over the team's own documents, and a graph of the entities in them.

In come documents, imported graphs and tool calls; out go search results and parts of the graph. The rest of
Headgate uses `knowledge.server` alone. It may import storage, workers, embedding, search, schema, protocol
and domain.
"""
