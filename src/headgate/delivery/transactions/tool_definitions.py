"""Names and definitions of the tools for transactions and operations."""

from typing import Any, Final

import msgspec

from headgate.delivery.transactions.saga_rules import OnFailure

BEGIN_TOOL: Final = "transaction_begin"
STEP_TOOL: Final = "transaction_step"
COMMIT_TOOL: Final = "transaction_commit"
ROLLBACK_TOOL: Final = "transaction_rollback"
GET_TRANSACTION_TOOL: Final = "get_transaction"
GET_OPERATION_TOOL: Final = "get_operation"
RESOLVE_TOOL: Final = "resolve_operation"

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_OBJECT: Final = {"type": "object"}
_READS: Final = {"readOnlyHint": True, "openWorldHint": False}
_IDEMPOTENT: Final = {"idempotentHint": True}


def _definition(
    name: str,
    description: str,
    needed: tuple[str, ...],
    annotations: dict[str, bool] | None = None,
    **properties: Any,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if needed:
        schema["required"] = list(needed)
    tool = {"name": name, "description": description, "inputSchema": schema}
    return tool if annotations is None else {**tool, "annotations": annotations}


# In the order in which they are listed.
_DEFINITIONS: Final = (
    _definition(
        BEGIN_TOOL,
        f"Begin a group of calls that are undone together: each {STEP_TOOL} names its compensation, "
        "which runs, "
        "last first, when a step fails or the time is over. No isolation: others see each effect at once.",
        (),
        timeout_ms={**_NUMBER, "description": "300000 by default."},
        on_failure={"type": "string", "enum": [*OnFailure], "description": "keep: try another way."},
    ),
    _definition(
        STEP_TOOL,
        "Call a tool as the next step of a transaction. Texts in compensate.args such as $result.id, "
        "$arguments.x are filled from this step. Without compensate it cannot be undone: make it last.",
        ("transaction_id", "tool"),
        transaction_id=_TEXT,
        tool=_TEXT,
        args=_OBJECT,
        compensate={"type": "object", "properties": {"tool": _TEXT, "args": _OBJECT}, "required": ["tool"]},
        sequence={**_NUMBER, "description": "1, 2, ...: a repeat of a number is not made twice."},
    ),
    _definition(
        COMMIT_TOOL,
        "Keep all steps of a transaction.",
        ("transaction_id",),
        _IDEMPOTENT,
        transaction_id=_TEXT,
    ),
    _definition(
        ROLLBACK_TOOL,
        "Run the compensations of a transaction, last step first; again if it is stuck.",
        ("transaction_id",),
        _IDEMPOTENT,
        transaction_id=_TEXT,
        leave={**_NUMBER, "description": "The step it is stuck at, to be left as it is."},
    ),
    _definition(
        GET_TRANSACTION_TOOL,
        "State, steps and history of a transaction.",
        ("transaction_id",),
        _READS,
        transaction_id=_TEXT,
    ),
    _definition(
        GET_OPERATION_TOOL,
        "What became of a recorded call, and its answer; op_id is in the _meta of its result or its error.",
        ("op_id",),
        _READS,
        op_id=_TEXT,
    ),
    _definition(
        RESOLVE_TOOL,
        "Settle a call that is in doubt, after checking whether it happened.",
        ("op_id", "happened"),
        op_id=_TEXT,
        happened={"type": "boolean"},
    ),
)
_TOOLS: Final = {tool["name"]: tool for tool in _DEFINITIONS}
TOOL_NAMES: Final = tuple(_TOOLS)
_STUBBED: Final = {
    BEGIN_TOOL: ("Begin calls that are undone together; no isolation.", ()),
    STEP_TOOL: ("Call a tool as a step of a transaction.", ("transaction_id", "tool", "args", "compensate")),
    COMMIT_TOOL: ("Keep all steps.", ("transaction_id",)),
    ROLLBACK_TOOL: ("Undo all steps.", ("transaction_id",)),
    GET_TRANSACTION_TOOL: ("State of a transaction.", ("transaction_id",)),
    GET_OPERATION_TOOL: ("What became of a recorded call.", ("op_id",)),
    RESOLVE_TOOL: ("Settle a call in doubt.", ("op_id", "happened")),
}


def _stub(name: str) -> bytes:
    """The shortest definition with which a model can use the tool."""
    description, arguments = _STUBBED[name]
    whole = _TOOLS[name]["inputSchema"]
    properties = {argument: {"type": whole["properties"][argument]["type"]} for argument in arguments}
    schema = {"type": "object", "properties": properties}
    if "required" in whole:
        schema["required"] = whole["required"]
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema})


DEFINITIONS: Final = {name: msgspec.json.encode(_TOOLS[name]) for name in TOOL_NAMES}
STUBS: Final = {name: _stub(name) for name in TOOL_NAMES}
