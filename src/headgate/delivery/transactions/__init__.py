"""Sagas: transactions whose completed steps are compensated in reverse when one of them fails.

In: calls that name a transaction, and the transaction tools. Out: the answers of the steps.
Imports `delivery`, `protocol` and `domain`; `storage` implements `TransactionStore`.
"""
