"""What the tools for transactions and operations are called."""

from typing import Final

BEGIN: Final = "transaction_begin"
STEP: Final = "transaction_step"
COMMIT: Final = "transaction_commit"
ROLLBACK: Final = "transaction_rollback"
GET_TRANSACTION: Final = "get_transaction"
GET_OPERATION: Final = "get_operation"
RESOLVE: Final = "resolve_operation"
# In the order in which they are listed.
NAMES: Final = (BEGIN, STEP, COMMIT, ROLLBACK, GET_TRANSACTION, GET_OPERATION, RESOLVE)
