"""Stores that survive a restart: `sqlite`, `postgres` and `files`, one package per engine.

In: calls of the Protocols that the rules declare (`Ledger`, `TransactionStore`, `ResultStore`).
Out: their records; StoreFailed where an engine fails. Imports the rules, `protocol` and `domain`.
"""
