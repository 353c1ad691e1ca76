"""ingestion package."""
