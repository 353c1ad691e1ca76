"""Which caller and tool a task belongs to after its call was answered."""

from collections import Counter, OrderedDict

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.item import Item
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.input_requests.errors import TaskNotFound
from headgate.protocol.jsonrpc import decode_object, encode_object

# The longest unused are forgotten first.
_MAX_TASKS = 10_000
_TASK_ID_MARKER = b'"taskId"'
_MAX_RESULT_BYTES = 64 * 1024
# Tenant and principal, and the id of the task.
_TaskKey = tuple[tuple[str, str], str]


class _TaskReference(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class _TaskResult(msgspec.Struct):
    """A result that is a task: by itself, or with the task inside."""

    task: _TaskReference = _TaskReference()
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class MemoryTaskRegistry:
    """The tool of each task, for the tenant and principal that began it."""

    def __init__(self) -> None:
        self._tools: OrderedDict[_TaskKey, Item] = OrderedDict()
        # How many owners have a task of that id.
        self._owner_counts: Counter[str] = Counter()

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
            self._note((call.request.caller.owner, id), call.item)

    def _note(self, task: "_TaskKey", item: Item) -> None:
        known = self._tools.get(task)
        self._owner_counts[task[1]] += known is None
        # A request about a task names its server, and not the tool that began it.
        if known is None or item.name or known.server != item.server:
            self._tools[task] = item
        self._tools.move_to_end(task)
        if len(self._tools) > _MAX_TASKS:
            (_, id), _ = self._tools.popitem(last=False)
            self._owner_counts -= Counter((id,))

    def tool_of_task(self, request: McpRequest) -> Item | None:
        """The tool that began the task of the request; None for another owner's task.

        Without a name where only its server is known.
        """
        return self._tools.get((request.caller.owner, _task_id(request)))

    def check_owner(self, request: McpRequest) -> None:
        """Raises TaskNotFound where the request is about a task that its caller does not own.

        The local user may also name a task from before a restart, which is recorded for no owner.
        """
        id = _task_id(request)
        if not id or not request.method.startswith("tasks/") or (request.caller.owner, id) in self._tools:
            return
        if request.caller.is_authenticated or self._owner_counts[id]:
            raise TaskNotFound(id)

    def own_tasks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        """The answer to `tasks/list` without the tasks of other owners."""
        if request.method != "tasks/list" or not isinstance(answer.result, bytes) or answer.error:
            return answer
        members = decode_object(answer.result)
        listed = msgspec.json.decode(members.get("tasks", b"[]"), type=list[Raw])
        owned = [task for task in listed if self._owns(request, task)]
        members["tasks"] = Raw(msgspec.json.encode(owned))
        return msgspec.structs.replace(answer, result=encode_object(members))

    def _owns(self, request: McpRequest, task: Raw) -> bool:
        id = msgspec.json.decode(task, type=_TaskReference).taskId
        if (request.caller.owner, id) in self._tools:
            return True
        return not request.caller.is_authenticated and not self._owner_counts[id]


def _task_id(request: McpRequest) -> str:
    try:
        return msgspec.json.decode(request.params.get("taskId", b'""'), type=str)
    except (DecodeError, UnicodeDecodeError):
        return ""
