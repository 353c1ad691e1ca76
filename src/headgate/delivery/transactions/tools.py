"""The tools with which clients make transactions and ask what became of recorded calls."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from headgate.delivery.ledger import State
from headgate.delivery.transactions.answers import close
from headgate.delivery.transactions.arguments import (
    COMPENSATE_META,
    DEFAULT_SECONDS,
    Identified,
    Named,
    Resolution,
    Rollback,
    beginning,
    identified,
    named,
    plain_step,
    step_of,
)
from headgate.delivery.transactions.calls import Operations, Use
from headgate.delivery.transactions.names import (
    BEGIN,
    COMMIT,
    GET_OPERATION,
    GET_TRANSACTION,
    RESOLVE,
    ROLLBACK,
    STEP,
)
from headgate.delivery.transactions.plan import OnFailure, Phase
from headgate.delivery.transactions.record import Place, Transaction
from headgate.delivery.transactions.report import answer_with, brief, moment, operation, whole
from headgate.delivery.transactions.sagas import Sagas
from headgate.domain.call import Answer, Call, Caller, Request


class Tool:
    """One own tool of the gateway."""

    def __init__(self, run: Callable[[Request], Awaitable[Answer]]) -> None:
        self._run = run

    async def run(self, request: Request) -> Answer:
        """The answer to one call; raises HeadgateError."""
        return await self._run(request)


class TransactionTools:
    """The tools for transactions and operations."""

    def __init__(
        self, sagas: Sagas, operations: Operations, *, default_seconds: float = DEFAULT_SECONDS
    ) -> None:
        """`default_seconds` is the time limit of a transaction whose client gives none."""
        self._default_seconds = default_seconds
        self._sagas = sagas
        self._operations = operations
        # All but the one that makes a call of another tool.
        self.own: Mapping[str, Tool] = MappingProxyType(
            {
                BEGIN: Tool(self._begin),
                COMMIT: Tool(self._commit),
                ROLLBACK: Tool(self._rollback),
                GET_TRANSACTION: Tool(self._get_transaction),
                GET_OPERATION: Tool(self._get_operation),
                RESOLVE: Tool(self._resolve),
            }
        )

    def is_step(self, request: Request) -> bool:
        """Whether the request is a step of a transaction; asked of every call."""
        ticket = request.ticket
        return request.name == STEP or (ticket is not None and bool(ticket.transaction))

    async def run_step(self, request: Request, use: Use) -> tuple[Call, Answer]:
        """The answer to a step, made with `use`; raises HeadgateError."""
        if request.name == STEP:
            id, wish = step_of(request)
            # Headers repeat the arguments of the tool, of which there are none that they should.
            request = msgspec.structs.replace(request, headers=None)
        else:
            id, wish = plain_step(request, self._default_seconds)
        meta = {name: value for name, value in request.meta.items() if name != COMPENSATE_META}
        request = msgspec.structs.replace(request, meta=meta)
        return await self._sagas.step(_place(request.caller, id), wish, request, use)

    async def _begin(self, request: Request) -> Answer:
        given = beginning(request.params)
        transaction = await self._sagas.begin(
            request.caller,
            seconds=given.seconds(self._default_seconds),
            on_failure=given.on_failure or OnFailure.ROLLBACK,
        )
        return answer_with({**brief(transaction), "deadline": moment(transaction.deadline)})

    async def _commit(self, request: Request) -> Answer:
        given = named(COMMIT, request.params, Named)
        return answer_with(brief(await self._sagas.commit(_place(request.caller, given.transaction_id))))

    async def _rollback(self, request: Request) -> Answer:
        given = named(ROLLBACK, request.params, Rollback)
        place = _place(request.caller, given.transaction_id)
        return _outcome(await self._sagas.rollback(place, leave=given.leave))

    async def _get_transaction(self, request: Request) -> Answer:
        given = named(GET_TRANSACTION, request.params, Named)
        return answer_with(whole(await self._sagas.look(_place(request.caller, given.transaction_id))))

    async def _get_operation(self, request: Request) -> Answer:
        given = identified(GET_OPERATION, request.params, Identified)
        found = await self._operations.look(request.caller, given.op_id)
        if found.state is not State.DONE or not found.answered:
            return answer_with(operation(found, None))
        answer = await self._operations.answer_of(found)
        try:
            return answer_with(operation(found, answer))
        finally:
            close(answer)

    async def _resolve(self, request: Request) -> Answer:
        given = identified(RESOLVE, request.params, Resolution)
        found = await self._operations.resolve(
            request.caller, given.op_id, happened=bool(given.happened), by="caller"
        )
        told = operation(found, None)
        transaction = await self._sagas.resolved(found)
        if transaction is not None:
            told["transaction"] = brief(transaction)
        return answer_with(told)


def _place(caller: Caller, id: str) -> Place:
    return Place(caller.tenant, caller.principal, id)


def _outcome(transaction: Transaction) -> Answer:
    """What a rollback came to; one that is stuck is a failure, and says what remains."""
    return answer_with(brief(transaction), failed=transaction.phase in (Phase.STUCK, Phase.LEFT))
