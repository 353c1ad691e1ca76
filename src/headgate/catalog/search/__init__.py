"""Search of tools by words and word vectors: documents, query terms, ranking, duplicates."""
