"""Which caller and tool a task belongs to after its call was answered."""

from collections import Counter, OrderedDict

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import InvalidUpstreamResponse
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.input_requests.errors import TaskNotFound
from headgate.protocol.jsonrpc import decode_object, encode_object

# The longest unused are forgotten first.
_MAX_TASKS = 10_000
TASK_ID_MARKER = b'"taskId"'
MAX_TASK_BYTES = 64 * 1024
_LIST_METHOD = "tasks/list"
# Tenant and principal, and the id of the task.
_TaskKey = tuple[tuple[str, str], str]


class _TaskReference(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class _TaskResult(msgspec.Struct):
    """A result that is a task: by itself, or with the task inside."""

    task: _TaskReference = _TaskReference()
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class MemoryTaskRegistry:
    """The tool of each task, for the tenant and principal that began it.

    Servers choose the ids: two of them may have a task of the same id, and not of the same owner.
    """

    def __init__(self) -> None:
        # By server, the latest last.
        self._tools: OrderedDict[_TaskKey, dict[str, Item]] = OrderedDict()
        # How many owners have a task of that id at that server.
        self._owner_counts: Counter[tuple[str, str]] = Counter()

    def record_task(self, call: UpstreamCall, answer: McpResponse) -> None:
        """Look for a task in the answer."""
        result = answer.result
        if not isinstance(result, bytes) or len(result) > MAX_TASK_BYTES or TASK_ID_MARKER not in result:
            return
        try:
            begun = msgspec.json.decode(result, type=_TaskResult)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return
        id = begun.task.taskId or begun.taskId
        if id:
            self._note((call.request.caller.owner, id), call.item)

    def _note(self, task: "_TaskKey", item: Item) -> None:
        tools = self._tools.setdefault(task, {})
        known = tools.pop(item.server, None)
        self._owner_counts[item.server, task[1]] += known is None
        # A request about a task names its server, and not the tool that began it.
        tools[item.server] = item if known is None or item.name else known
        self._tools.move_to_end(task)
        if len(self._tools) > _MAX_TASKS:
            (_, id), forgotten = self._tools.popitem(last=False)
            self._owner_counts -= Counter((server, id) for server in forgotten)

    def tool_of_task(self, request: McpRequest, server: str | None = None) -> Item | None:
        """The tool that began the task of the request; None for another owner's task.

        At that server, or without one at the latest. Without a name where only its server is known.
        """
        tools = self._tools.get((request.caller.owner, _task_id(request)))
        if not tools:
            return None
        return tools.get(server or next(reversed(tools)))

    def check_owner(self, request: McpRequest, server: str) -> None:
        """Raises TaskNotFound where the request is about a task at the server that its caller does not own.

        The local user may also name a task from before a restart, which is recorded for no owner.
        """
        if not request.method.startswith("tasks/") or request.method == _LIST_METHOD:
            return
        id = _task_id(request)
        if not self._owns(request, server, id):
            raise TaskNotFound(id)

    def own_tasks(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The answer to `tasks/list` without the tasks of other owners; raises InvalidUpstreamResponse."""
        request, server = call.request, call.item.server
        if request.method != _LIST_METHOD or answer.error:
            return answer
        if not isinstance(answer.result, bytes):
            caller = request.caller
            if not caller.is_authenticated and all(caller.owner == other for other, _ in self._tools):
                return answer
            answer.result.close()
            raise InvalidUpstreamResponse(server, _LIST_METHOD, "a page of tasks that is too large to filter")
        members = decode_object(answer.result)
        listed = msgspec.json.decode(members.get("tasks", b"[]"), type=list[Raw])
        ids = [msgspec.json.decode(task, type=_TaskReference).taskId for task in listed]
        owned = [task for task, id in zip(listed, ids, strict=True) if self._owns(request, server, id)]
        members["tasks"] = Raw(msgspec.json.encode(owned))
        return msgspec.structs.replace(answer, result=encode_object(members))

    def _owns(self, request: McpRequest, server: str, id: str) -> bool:
        if server in self._tools.get((request.caller.owner, id), ()):
            return True
        return not request.caller.is_authenticated and not self._owner_counts[server, id]


def _task_id(request: McpRequest) -> str:
    """The id of the task; of one that is no text the JSON, because a server may take 7 for "7"."""
    given = request.params.get("taskId", b'""')
    try:
        return msgspec.json.decode(given, type=str)
    except (DecodeError, UnicodeDecodeError):
        return bytes(given).decode(errors="replace")
