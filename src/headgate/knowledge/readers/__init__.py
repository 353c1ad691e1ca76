"""Readers of documents: Markdown, text, HTML, PDF, DOCX, CSV and JSON, in a confined process.

In come files and directories; out go documents in sections with their metadata. It may import
`knowledge.ingestion.document_source`, workers and domain; each parser's library is imported when needed.
"""
