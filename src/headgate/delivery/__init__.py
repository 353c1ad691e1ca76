"""Executes recorded, retried and limited calls to upstreams.

In: an `UpstreamCall`. Out: its `McpResponse`, or a HeadgateError whose effect says what may have happened.
The path: `send_recorded` (ledger) > `send_with_retry` > `send_admitted` (bulkhead) > the upstream.
Imports `protocol` and `domain` alone; `storage` implements `Ledger` and `TransactionStore`.
"""
