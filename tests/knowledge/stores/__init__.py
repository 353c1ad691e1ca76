"""The same sentences about every store of documents."""
