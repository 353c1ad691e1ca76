"""The delivery options of one call, and the delivery status in its reply."""

from typing import Final

import msgspec

from headgate.domain.upstream_policy import Priority

# The features of rmcp that the gateway has, in the order in which it names them.
FEATURES: Final = ("ack", "retry", "idempotency", "transactions", "chunking")


class DeliveryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery options beside the arguments of a call; a plain call has none."""

    # Names one logical call of one caller.
    key: str = ""
    # Whether a call whose first attempt may have happened is to be made again all the same.
    retries_doubt: bool = False
    # The longest that the caller waits.
    timeout_seconds: float | None = None
    priority: Priority | None = None
    # The transaction that the call is a step of, and which step it is.
    transaction: str = ""
    sequence: int | None = None
    # Of a client that speaks rmcp: what it calls this request, and the features that both have.
    request_id: str = ""
    features: frozenset[str] = frozenset()
    # The names under which it is answered: a client that writes the older name is answered under both.
    rmcp_names: tuple[str, ...] = ("rmcp",)


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a call with delivery options."""

    # Of a call that the ledger has; empty for any other.
    op_id: str = ""
    duplicate: bool = False
    attempts: int = 1
    # Whether an attempt before the one that was answered may have been carried out too.
    doubted: bool = False
    # The state of the operation in the words of the ledger.
    state: str = ""
    # The later word of an operator, a probe or the caller, where no answer of the server is known.
    resolved_by: str = ""
    # Whether the ledger could not be written, so that a repeat would be carried out again.
    unrecorded: bool = False
