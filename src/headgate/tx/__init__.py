"""Reliable tool calls for Python programs: wrap a session of the official SDK and call through it.

    async with TxSession(Client("http://localhost:8000/mcp")) as tx:
        answer = await tx.call_tool("pay", {"amount": 5}, idempotency_key="order-17")

In: calls of a program. Out: a `TxResult` or a `TxError`, whose effect says what may have happened.
It runs on asyncio, imports `delivery`, `protocol` and `domain`, and of the SDK only what a session needs.
"""

from headgate.tx.app import TxApp
from headgate.tx.config import RetryPolicy, TxConfig
from headgate.tx.errors import (
    TxConflictError,
    TxError,
    TxInDoubtError,
    TxNetworkError,
    TxSequenceError,
    TxTimeoutError,
)
from headgate.tx.session import TxSession
from headgate.tx.tool_call import RequestState, TxRequest, TxResult
from headgate.tx.transaction import Transaction

__all__ = [
    "RequestState",
    "RetryPolicy",
    "Transaction",
    "TxApp",
    "TxConfig",
    "TxConflictError",
    "TxError",
    "TxInDoubtError",
    "TxNetworkError",
    "TxRequest",
    "TxResult",
    "TxSequenceError",
    "TxSession",
    "TxTimeoutError",
]
