"""A task that goes on after its call belongs to its caller and its server."""

import json
from typing import Any

import pytest

from headgate.domain.errors import InvalidUpstreamResponse
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.input_requests.errors import TaskNotFound
from headgate.input_requests.task_registry import MemoryTaskRegistry
from tests.gateway_harness import Large
from tests.input_requests.bridge_harness import raw


def began(handles: MemoryTaskRegistry, result: Any, server: str = "bank", who: str = "ann") -> None:
    answer = McpResponse(result if isinstance(result, Large) else json.dumps(result).encode())
    request = McpRequest(caller=Identity(principal=who))
    handles.record_task(UpstreamCall(request, Item(ItemKind.TOOLS, server, "dig", f"{server}_dig")), answer)


def about(id: Any, who: str = "ann") -> McpRequest:
    return McpRequest(caller=Identity(principal=who), method="tasks/get", params=raw({"taskId": id}))


def server_of(handles: MemoryTaskRegistry, request: McpRequest) -> str | None:
    tool = handles.tool_of_task(request)
    return tool.server if tool is not None else None


@pytest.mark.parametrize(
    "result", [{"task": {"taskId": "t", "status": "working"}}, {"resultType": "task", "taskId": "t"}]
)
def test_the_server_that_began_a_task_is_remembered(result: Any) -> None:
    handles = MemoryTaskRegistry()
    began(handles, result)
    assert server_of(handles, about("t")) == "bank"


def test_nobody_else_has_that_task() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "t"})
    began(handles, {"taskId": "t"}, "other", "bob")
    assert server_of(handles, about("t")) == "bank"
    assert server_of(handles, about("t", "bob")) == "other"
    assert handles.tool_of_task(about("t", "cy")) is None


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
    handles = MemoryTaskRegistry()
    began(handles, result)
    for id in ("t", "", 5, None, ["t"]):
        assert handles.tool_of_task(about(id)) is None


def test_a_request_without_a_task_is_about_none() -> None:
    assert MemoryTaskRegistry().tool_of_task(McpRequest(caller=Identity(principal="ann"))) is None


def test_tasks_without_end_push_out_the_oldest() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "old"})
    began(handles, {"taskId": "kept"})
    for number in range(9_999):
        began(handles, {"taskId": f"t{number}"})
        if number == 5_000:
            began(handles, {"taskId": "kept"})
    assert handles.tool_of_task(about("old")) is None
    assert server_of(handles, about("kept")) == server_of(handles, about("t9998")) == "bank"


def test_the_tool_of_a_task_stays_known_when_the_task_is_asked_about() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "t"})
    asked = UpstreamCall(about("t"), Item(ItemKind.TOOLS, "bank", "", "tasks/get"))
    handles.record_task(asked, McpResponse(b'{"taskId":"t","status":"working"}'))
    tool = handles.tool_of_task(about("t"))
    assert tool is not None
    assert tool.name == "dig"


def test_of_a_task_that_is_only_asked_about_the_server_is_known() -> None:
    handles = MemoryTaskRegistry()
    asked = UpstreamCall(about("t"), Item(ItemKind.TOOLS, "bank", "", "tasks/get"))
    handles.record_task(asked, McpResponse(b'{"taskId":"t","status":"working"}'))
    assert server_of(handles, about("t")) == "bank"


def at(server: str, method: str = "tasks/list", who: str = "ann") -> UpstreamCall:
    request = McpRequest(caller=Identity(principal=who), method=method)
    return UpstreamCall(request, Item(ItemKind.TOOLS, server, "", method))


def test_a_task_is_owned_at_the_server_that_has_it_and_at_no_other() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "1"}, "bank", "ann")
    began(handles, {"taskId": "1"}, "other", "bob")
    handles.check_owner(about("1"), "bank")
    handles.check_owner(about("1", "bob"), "other")
    for who, server in (("ann", "other"), ("bob", "bank"), ("local", "bank")):
        with pytest.raises(TaskNotFound):
            handles.check_owner(about("1", who), server)


def test_tasks_of_one_owner_at_two_servers_may_have_the_same_id() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "1"}, "bank")
    began(handles, {"taskId": "1"}, "other")
    for server in ("bank", "other"):
        handles.check_owner(about("1"), server)
        tool = handles.tool_of_task(about("1"), server)
        assert tool is not None
        assert tool.server == server
    assert server_of(handles, about("1")) == "other"


@pytest.mark.parametrize("id", [1, None, ["1"], ""])
def test_what_is_no_id_is_no_task_of_a_caller(id: Any) -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "1"}, "bank", "bob")
    with pytest.raises(TaskNotFound):
        handles.check_owner(about(id), "bank")


def test_a_list_has_the_tasks_of_its_owner_at_its_server() -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "1"}, "bank", "ann")
    began(handles, {"taskId": "2"}, "bank", "bob")
    began(handles, {"taskId": "2"}, "other", "ann")
    listed = McpResponse(b'{"tasks":[{"taskId":"1"},{"taskId":"2"},{"taskId":"3"}]}')

    def ids(who: str) -> list[str]:
        result = handles.own_tasks(at("bank", who=who), listed).result
        assert isinstance(result, bytes)
        return [task["taskId"] for task in json.loads(result)["tasks"]]

    assert (ids("ann"), ids("bob"), ids("local")) == (["1"], ["2"], ["3"])


@pytest.mark.parametrize("who", ["ann", "local"])
def test_a_list_that_is_too_large_to_filter_is_refused(who: str) -> None:
    handles = MemoryTaskRegistry()
    began(handles, {"taskId": "2"}, "bank", "bob")
    with pytest.raises(InvalidUpstreamResponse):
        handles.own_tasks(at("bank", who=who), McpResponse(Large(b'{"tasks":[{"taskId":"2"}]}')))


def test_the_local_user_gets_a_large_list_where_nobody_else_has_tasks() -> None:
    large = McpResponse(Large(b'{"tasks":[{"taskId":"2"}]}'))
    assert MemoryTaskRegistry().own_tasks(at("bank", who="local"), large) is large
