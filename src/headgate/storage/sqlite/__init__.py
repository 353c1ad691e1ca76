"""Stores in SQLite files: the ledger with transactions, and the catalog.

The schema of each file is in `migrations`. Imports `delivery`, `catalog`, `storage.files` and `domain`.
"""
