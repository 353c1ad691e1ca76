"""One call from the client's name of a tool to its upstream."""

import asyncio

import pytest

from headgate.access.local import LocalAccess
from headgate.domain.call import LOCAL, Answer, Request
from headgate.domain.errors import Effect, ToolNotFound, UpstreamUnavailable
from headgate.gateway import Gateway
from headgate.responses.whole import WholeResponses
from tests.catalog.owners import catalog_of, tool
from tests.delivery.scripted import DONE, WAIT_SECONDS, Desk
from tests.waiting import eventually


class House:
    """A gateway before one server that has not told its tools yet."""

    def __init__(self) -> None:
        self.desk = Desk(DONE)
        self.catalog = catalog_of("bank")
        self._gateway = Gateway(LocalAccess(), self.catalog, self.desk.delivery, WholeResponses())

    async def call(self, name: str) -> Answer:
        return await self._gateway.call(Request(caller=LOCAL, tool=name, arguments=b"{}"))

    async def waiting(self, name: str) -> asyncio.Task[Answer]:
        """A call that waits for the server."""
        self.desk.upstream.open.clear()
        call = asyncio.create_task(self.call(name))
        await eventually(lambda: bool(self.desk.upstream.awaited), WAIT_SECONDS, "the call waits")
        assert not call.done()
        return call

    def start(self, *tools: str) -> None:
        """Let the server be ready with these tools."""
        self.catalog.offer("bank", [tool(name) for name in tools])
        self.desk.upstream.open.set()


@pytest.mark.parametrize("name", ["bank_pay", "bank:pay", "bank__pay"])
async def test_a_call_waits_for_a_server_that_is_still_starting(name: str) -> None:
    house = House()
    call = await house.waiting(name)
    house.start("pay")
    assert await call is DONE
    assert [one.tool.name for one in house.desk.upstream.received] == ["pay"]
    assert house.desk.upstream.awaited == ["bank"]


async def test_a_call_of_a_tool_that_the_server_turns_out_not_to_have_is_not_found() -> None:
    house = House()
    call = await house.waiting("bank_pay")
    house.start("play")
    with pytest.raises(ToolNotFound) as missing:
        await call
    assert "bank_play" in missing.value.hint


async def test_a_call_of_a_server_that_does_not_start_fails_with_the_cause() -> None:
    house = House()
    house.desk.upstream.absence = UpstreamUnavailable("bank", "no database", retry_after_seconds=1.0)
    with pytest.raises(UpstreamUnavailable, match="no database") as failed:
        await house.call("bank_pay")
    assert failed.value.effect is Effect.NONE
    assert house.desk.upstream.received == []


async def test_a_name_of_no_server_is_not_found_at_once() -> None:
    house = House()
    with pytest.raises(ToolNotFound):
        await house.call("other_pay")
    assert house.desk.upstream.awaited == []


async def test_a_server_that_has_told_its_tools_is_not_waited_for() -> None:
    house = House()
    house.start("pay")
    assert await house.call("bank_pay") is DONE
    with pytest.raises(ToolNotFound):
        await house.call("bank_steal")
    assert house.desk.upstream.awaited == []
