"""Whose a task is that goes on after the call which began it was answered."""

from collections import OrderedDict

import msgspec
from msgspec import DecodeError

from headgate.domain.call import Answer, Call, Request

# The longest unused are forgotten first.
_MOST_TASKS = 10_000
_MARK = b'"taskId"'
_MOST_BYTES = 64 * 1024


class _Task(msgspec.Struct, frozen=True):
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class _Begun(msgspec.Struct):
    """A result that is a task: by itself, or with the task inside."""

    task: _Task = _Task()
    taskId: str = ""  # noqa: N815 (the protocol's spelling)


class TaskHandles:
    """The server of each task, for the caller that began it and nobody else."""

    def __init__(self) -> None:
        self._servers: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note(self, call: Call, answer: Answer) -> None:
        """Look for a task in the answer."""
        result = answer.result
        if not isinstance(result, bytes) or len(result) > _MOST_BYTES or _MARK not in result:
            return
        try:
            begun = msgspec.json.decode(result, type=_Begun)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return
        id = begun.task.taskId or begun.taskId
        if id:
            self._servers[(call.request.caller.principal, id)] = call.item.server
            self._servers.move_to_end((call.request.caller.principal, id))
            if len(self._servers) > _MOST_TASKS:
                self._servers.popitem(last=False)

    def server(self, request: Request) -> str | None:
        """The server of the task that the request is about; another caller's task is as good as none."""
        try:
            id = msgspec.json.decode(request.params.get("taskId", b'""'), type=str)
        except (DecodeError, UnicodeDecodeError):
            return None
        return self._servers.get((request.caller.principal, id))
