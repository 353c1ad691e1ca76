"""Which caller and tool a task belongs to after its call was answered."""

from collections import OrderedDict

import msgspec
from msgspec import DecodeError

from headgate.domain.item import Item
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall

# The longest unused are forgotten first.
_MAX_TASKS = 10_000
_TASK_ID_MARKER = b'"taskId"'
_MAX_RESULT_BYTES = 64 * 1024


class _TaskReference(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class _TaskResult(msgspec.Struct):
    """A result that is a task: by itself, or with the task inside."""

    task: _TaskReference = _TaskReference()
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class MemoryTaskRegistry:
    """The tool of each task, for the caller that began it and nobody else."""

    def __init__(self) -> None:
        self._tools: OrderedDict[tuple[str, str], Item] = OrderedDict()

    def record_task(self, call: UpstreamCall, answer: McpResponse) -> None:
        """Look for a task in the answer."""
        result = answer.result
        if not isinstance(result, bytes) or len(result) > _MAX_RESULT_BYTES or _TASK_ID_MARKER not in result:
            return
        try:
            begun = msgspec.json.decode(result, type=_TaskResult)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return
        id = begun.task.taskId or begun.taskId
        if id:
            self._note((call.request.caller.principal, id), call.item)

    def _note(self, task: tuple[str, str], item: Item) -> None:
        known = self._tools.get(task)
        # A request about a task names its server, and not the tool that began it.
        if known is None or item.name or known.server != item.server:
            self._tools[task] = item
        self._tools.move_to_end(task)
        if len(self._tools) > _MAX_TASKS:
            self._tools.popitem(last=False)

    def tool_of_task(self, request: McpRequest) -> Item | None:
        """The tool that began the task of the request; another caller's task is as good as none.

        Without a name where only its server is known.
        """
        try:
            id = msgspec.json.decode(request.params.get("taskId", b'""'), type=str)
        except (DecodeError, UnicodeDecodeError):
            return None
        return self._tools.get((request.caller.principal, id))
