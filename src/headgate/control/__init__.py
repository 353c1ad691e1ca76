"""What an operator does: lists, shows and settles recorded calls and transactions, recovers a ledger.

In: a `LedgerSource` and a decision. Out: records, listings and reports as values, which `cli` prints and
`web` may show; nothing here knows a terminal. It opens no file: `app` implements its Protocols.
It may import the rules below it, `protocol` and `domain`.
"""
