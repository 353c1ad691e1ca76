"""The tools for transactions and operations: reads their arguments and runs them."""

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import DecodeError, Meta, Raw
from msgspec.structs import replace

from headgate.delivery.ledger import OperationState
from headgate.delivery.operation_record import close_answer
from headgate.delivery.transactions.saga_calls import OperationLookup, SendCall
from headgate.delivery.transactions.saga_rules import OnFailure, Phase
from headgate.delivery.transactions.saga_runner import SagaRunner
from headgate.delivery.transactions.step_runner import StepRequest
from headgate.delivery.transactions.tool_definitions import (
    BEGIN_TOOL,
    COMMIT_TOOL,
    GET_OPERATION_TOOL,
    GET_TRANSACTION_TOOL,
    RESOLVE_TOOL,
    ROLLBACK_TOOL,
    STEP_TOOL,
)
from headgate.delivery.transactions.transaction_report import (
    format_time,
    operation_details,
    tool_result,
    transaction_details,
    transaction_summary,
)
from headgate.delivery.transactions.transaction_store import TransactionKey
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.tool_arguments import (
    ARGUMENT_CONTAINERS,
    ArgumentReader,
    nested_arguments,
    object_argument,
    refuse_unknown,
)

# Names the compensation of a step that came as a plain call.
COMPENSATE_META: Final = "io.headgate/compensate"
DEFAULT_SECONDS: Final = 300.0
_BEGIN_EXAMPLE: Final = 'call it with {"timeout_ms": 300000}: 1000 to 86400000, which is a day'
_STEP_EXAMPLE: Final = (
    'call it with {"transaction_id": "...", "tool": "...", "args": {...}, '
    '"compensate": {"tool": "...", "args": {"id": "$result.id"}}}'
)
_META_EXAMPLE: Final = f'give "{COMPENSATE_META}" as {{"tool": "...", "arguments": {{...}}}}'
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ID_HINT: Final = "1 to 128 letters, digits, '_', '-', '.' or ':'"


class BeginArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of transaction_begin. Some models write null for an argument that they leave out."""

    timeout_ms: Annotated[int, Meta(ge=1_000, le=86_400_000)] | None = None
    on_failure: OnFailure | None = None

    def timeout_seconds(self, otherwise: float) -> float:
        """The time limit; `otherwise` where none is given."""
        return self.timeout_ms / 1000 if self.timeout_ms is not None else otherwise


class _StepArguments(msgspec.Struct, frozen=True, kw_only=True):
    transaction_id: str = ""
    tool: str = ""
    compensate: Raw = Raw(b"null")
    sequence: Annotated[int, Meta(ge=1)] | None = None


class TransactionArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of the tools that take a transaction."""

    transaction_id: str = ""


class RollbackArguments(TransactionArguments, frozen=True, kw_only=True):
    """Arguments of transaction_rollback; `leave` is the step to leave as it is."""

    leave: Annotated[int, Meta(ge=1)] | None = None


class OperationArguments(msgspec.Struct, frozen=True, kw_only=True):
    op_id: str = ""


class ResolveArguments(OperationArguments, frozen=True, kw_only=True):
    """Arguments of resolve_operation; `happened` says whether the call was executed."""

    happened: bool | None = None


_TRANSACTION_EXAMPLE: Final = 'call it with {"transaction_id": "..."}, which transaction_begin gives'
_begin_arguments = ArgumentReader(
    BEGIN_TOOL, BeginArguments, example=_BEGIN_EXAMPLE, choices={"on_failure": "rollback or keep"}
)
_step_arguments = ArgumentReader(
    STEP_TOOL, _StepArguments, example=_STEP_EXAMPLE, container="args", required=("transaction_id", "tool")
)
_of_transaction = partial(ArgumentReader, example=_TRANSACTION_EXAMPLE, required=("transaction_id",))
_commit_arguments = _of_transaction(COMMIT_TOOL, TransactionArguments)
_rollback_arguments = _of_transaction(ROLLBACK_TOOL, RollbackArguments)
_get_transaction_arguments = _of_transaction(GET_TRANSACTION_TOOL, TransactionArguments)
_get_operation_arguments = ArgumentReader(
    GET_OPERATION_TOOL, OperationArguments, example='call it with {"op_id":"..."}', required=("op_id",)
)
_resolve_arguments = ArgumentReader(
    RESOLVE_TOOL,
    ResolveArguments,
    example='call it with {"op_id":"...","happened":true}',
    required=("op_id", "happened"),
)


def read_step(request: McpRequest) -> tuple[str, StepRequest]:
    """The transaction and the step that a call of transaction_step requests; raises InvalidArguments."""
    given = _step_arguments.read(request.params)
    arguments = _step_arguments.read_nested(request.params)
    remedy = _object_members(given.compensate, STEP_TOOL, "compensate", _STEP_EXAMPLE)
    undo_tool, undo_template = _compensation(remedy, STEP_TOOL, _STEP_EXAMPLE)
    step_request = StepRequest(
        tool=given.tool,
        arguments=bytes(arguments),
        undo_tool=undo_tool,
        undo_template=undo_template,
        sequence=given.sequence,
        key=request.delivery_request.key if request.delivery_request is not None else "",
        spoken=True,
    )
    return given.transaction_id, step_request


def read_plain_step(request: McpRequest, begins_seconds: float) -> tuple[str, StepRequest]:
    """The same for a plain call whose delivery request names a transaction; raises InvalidArguments."""
    delivery_request = request.delivery_request
    assert delivery_request is not None
    if not _ID.fullmatch(delivery_request.transaction):
        problem = f"transaction_id is {delivery_request.transaction[:100]!r}"
        raise InvalidArguments("tools/call", problem, hint=f"an id has {_ID_HINT}")
    raw = request.meta.get(COMPENSATE_META, Raw(b"null"))
    remedy = _object_members(raw, "tools/call", COMPENSATE_META, _META_EXAMPLE)
    undo_tool, undo_template = _compensation(remedy, "tools/call", _META_EXAMPLE)
    step_request = StepRequest(
        tool=request.name,
        arguments=bytes(request.params.get("arguments", b"{}")),
        undo_tool=undo_tool,
        undo_template=undo_template,
        sequence=delivery_request.sequence,
        key=delivery_request.key,
        begins_seconds=begins_seconds,
    )
    return delivery_request.transaction, step_request


def _object_members(raw: Raw, owner: str, argument: str, example: str) -> dict[str, Raw] | None:
    """The members of an object, which may have been sent as a string; None for null."""
    if bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(object_argument(bytes(raw), owner, argument, example), type=dict[str, Raw])
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(owner, f"{argument} cannot be read ({error})", hint=example) from error


def _compensation(given: Mapping[str, Raw] | None, owner: str, example: str) -> tuple[str, bytes]:
    """The tool that undoes a step and the template of its arguments; empty for none.

    A compensation that lost an argument would undo something else, so nothing in it is dropped.
    """
    if given is None:
        return "", b"{}"
    try:
        undo = msgspec.json.decode(given.get("tool", b'""'), type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(owner, "compensate.tool: expected a text", hint=example) from error
    refuse_unknown(
        f"{owner}: compensate",
        given,
        ("tool", "args"),
        hint=example,
        accepted=ARGUMENT_CONTAINERS,
        target=undo,
    )
    if not undo:
        raise InvalidArguments(owner, "compensate names no tool", hint=example)
    return undo, bytes(nested_arguments(given, owner, example, within="compensate."))


class TransactionTool(NamedTuple):
    """One of the gateway's own tools; `run` gives the answer to one call, and raises HeadgateError."""

    run: Callable[[McpRequest], Coroutine[Any, Any, McpResponse]]


class TransactionTools:
    def __init__(
        self,
        saga_runner: SagaRunner,
        operations: OperationLookup,
        *,
        default_seconds: float = DEFAULT_SECONDS,
    ) -> None:
        """`default_seconds` is the time limit of a transaction whose client gives none."""
        self._default_seconds = default_seconds
        self._saga_runner = saga_runner
        self._operations = operations
        # All but transaction_step, which calls another tool.
        self.tools_by_name: Mapping[str, TransactionTool] = MappingProxyType(
            {
                BEGIN_TOOL: TransactionTool(self._begin),
                COMMIT_TOOL: TransactionTool(self._commit),
                ROLLBACK_TOOL: TransactionTool(self._rollback),
                GET_TRANSACTION_TOOL: TransactionTool(self._get_transaction),
                GET_OPERATION_TOOL: TransactionTool(self._get_operation),
                RESOLVE_TOOL: TransactionTool(self._resolve),
            }
        )

    def is_step(self, request: McpRequest) -> bool:
        """Whether the request is a step of a transaction; every call passes here."""
        delivery_request = request.delivery_request
        return request.name == STEP_TOOL or (
            delivery_request is not None and bool(delivery_request.transaction)
        )

    async def run_step(self, request: McpRequest, send_call: SendCall) -> tuple[UpstreamCall, McpResponse]:
        """The answer to a step, which `send_call` sends; raises HeadgateError."""
        if request.name == STEP_TOOL:
            id, step_request = read_step(request)
            # Headers mirror arguments of transaction_step, not of the tool that it calls.
            request = replace(request, headers=None)
        else:
            id, step_request = read_plain_step(request, self._default_seconds)
        meta = {name: value for name, value in request.meta.items() if name != COMPENSATE_META}
        request = replace(request, meta=meta)
        return await self._saga_runner.run_step(
            _transaction_key(request.caller, id), step_request, request, send_call
        )

    async def _begin(self, request: McpRequest) -> McpResponse:
        given = _begin_arguments.read(request.params)
        transaction = await self._saga_runner.begin(
            request.caller,
            seconds=given.timeout_seconds(self._default_seconds),
            on_failure=given.on_failure or OnFailure.ROLLBACK,
        )
        return tool_result(
            {**transaction_summary(transaction), "deadline": format_time(transaction.deadline)}
        )

    async def _commit(self, request: McpRequest) -> McpResponse:
        given = _commit_arguments.read(request.params)
        key = _transaction_key(request.caller, given.transaction_id)
        return tool_result(transaction_summary(await self._saga_runner.commit(key)))

    async def _rollback(self, request: McpRequest) -> McpResponse:
        given = _rollback_arguments.read(request.params)
        key = _transaction_key(request.caller, given.transaction_id)
        transaction = await self._saga_runner.rollback(key, leave=given.leave)
        # A stuck one is an error, and names what remains.
        failed = transaction.phase in (Phase.STUCK, Phase.LEFT)
        return tool_result(transaction_summary(transaction), failed=failed)

    async def _get_transaction(self, request: McpRequest) -> McpResponse:
        given = _get_transaction_arguments.read(request.params)
        key = _transaction_key(request.caller, given.transaction_id)
        return tool_result(transaction_details(await self._saga_runner.find_transaction(key)))

    async def _get_operation(self, request: McpRequest) -> McpResponse:
        given = _get_operation_arguments.read(request.params)
        found = await self._operations.find_operation(request.caller, given.op_id)
        if found.state is not OperationState.DONE or not found.answered:
            return tool_result(operation_details(found, None))
        answer = await self._operations.recorded_answer(found)
        try:
            return tool_result(operation_details(found, answer))
        finally:
            close_answer(answer)

    async def _resolve(self, request: McpRequest) -> McpResponse:
        given = _resolve_arguments.read(request.params)
        found = await self._operations.resolve(
            request.caller, given.op_id, happened=bool(given.happened), by="caller"
        )
        report = operation_details(found, None)
        transaction = await self._saga_runner.on_operation_resolved(found)
        if transaction is not None:
            report["transaction"] = transaction_summary(transaction)
        return tool_result(report)


def _transaction_key(caller: Identity, id: str) -> TransactionKey:
    return TransactionKey(caller.tenant, caller.principal, id)
