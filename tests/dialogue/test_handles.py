"""A task that goes on after its call belongs to its caller and its server."""

import json
from typing import Any

import pytest

from headgate.dialogue.handles import TaskHandles
from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from tests.dialogue.table import raw
from tests.house import Large


def began(handles: TaskHandles, result: Any, server: str = "bank", who: str = "ann") -> None:
    answer = Answer(result if isinstance(result, Large) else json.dumps(result).encode())
    request = Request(caller=Caller(who))
    handles.note(Call(request, Item(Kind.TOOLS, server, "dig", f"{server}_dig")), answer)


def about(id: Any, who: str = "ann") -> Request:
    return Request(caller=Caller(who), method="tasks/get", params=raw({"taskId": id}))


@pytest.mark.parametrize(
    "result", [{"task": {"taskId": "t", "status": "working"}}, {"resultType": "task", "taskId": "t"}]
)
def test_the_server_that_began_a_task_is_remembered(result: Any) -> None:
    handles = TaskHandles()
    began(handles, result)
    assert handles.server(about("t")) == "bank"


def test_nobody_else_has_that_task() -> None:
    handles = TaskHandles()
    began(handles, {"taskId": "t"})
    began(handles, {"taskId": "t"}, "other", "bob")
    assert handles.server(about("t")) == "bank"
    assert handles.server(about("t", "bob")) == "other"
    assert handles.server(about("t", "cy")) is None


@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {"content": [{"text": '"taskId"'}]},
        {"taskId": 5},
        {"task": [{"taskId": "t"}]},
        {"taskId": ""},
        ["taskId"],
        Large(b'{"taskId":"t"}'),
        {"taskId": "t", "more": "x" * 70_000},
    ],
)
def test_what_is_no_task_is_not_remembered(result: Any) -> None:
    handles = TaskHandles()
    began(handles, result)
    for id in ("t", "", 5, None, ["t"]):
        assert handles.server(about(id)) is None


def test_a_request_without_a_task_is_about_none() -> None:
    assert TaskHandles().server(Request(caller=Caller("ann"))) is None


def test_tasks_without_end_push_out_the_oldest() -> None:
    handles = TaskHandles()
    began(handles, {"taskId": "old"})
    began(handles, {"taskId": "kept"})
    for number in range(9_999):
        began(handles, {"taskId": f"t{number}"})
        if number == 5_000:
            began(handles, {"taskId": "kept"})
    assert handles.server(about("old")) is None
    assert handles.server(about("kept")) == handles.server(about("t9998")) == "bank"
