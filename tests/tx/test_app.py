"""Tools of a server as functions of a program."""

from typing import Any

import pytest
from mcp import Client

from headgate.tx import RetryPolicy, TxApp, TxError, TxSession
from testkit.sdk_servers.rmcp_shop import Shop, temporary
from testkit.virtual_time import RecordingSleep


async def test_to_call_the_function_is_to_call_the_tool() -> None:
    shop = Shop()
    app = TxApp(Client(shop.server))

    @app.tool()
    async def pay(amount: int, *, to: str = "nobody", **more: Any) -> None:
        """Pay an account."""

    async with app:
        answer = await pay(5, to="ann", note="thanks")
        await pay(6)
    assert answer.final_status == "completed"
    assert shop.executed == [("pay", {"amount": 5, "to": "ann", "note": "thanks"}), ("pay", {"amount": 6})]
    assert (pay.__name__, pay.__doc__, app.tools) == ("pay", "Pay an account.", ("pay",))


async def test_each_tool_is_delivered_as_it_was_declared() -> None:
    shop = Shop()
    shop.script["pay"] = [temporary(), temporary()]
    async with TxSession(Client(shop.server), sleep=RecordingSleep()) as tx:
        app = TxApp(tx)

        @app.tool(name="pay", retry_policy=RetryPolicy(max_attempts=2))
        async def hand_over(order: str) -> None: ...

        @app.tool(name="book", idempotency_key_generator=lambda arguments: f"book {arguments['seat']}")
        async def reserve(seat: int) -> None: ...

        @app.tool(timeout_ms=50)
        async def nap() -> None: ...

        async with app:
            assert (await hand_over("17")).attempts == 2
            assert [(await reserve(seat)).duplicate for seat in (1, 1, 2)] == [False, True, False]
            assert (await nap()).error_code == "TIMEOUT"
        # The session is its owner's, so it stays open.
        assert (await tx.call_tool("look")).final_status == "completed"


async def test_mistakes_are_named() -> None:
    app = TxApp(Client(Shop().server))

    @app.tool()
    async def pay() -> None: ...

    with pytest.raises(TxError, match="'pay' was called before `async with app`"):
        await pay()
    with pytest.raises(TxError, match="'pay' is declared already"):
        app.tool(name="pay")(nothing)
    with pytest.raises(TxError, match=r"no tool 'pya' is declared; did you mean 'pay'\?") as unknown:
        await app.call_tool("pya")
    assert unknown.value.error_code == "TOOL_NOT_FOUND"
    with pytest.raises(TypeError, match="an async function"):
        app.tool()(lambda: None)  # type: ignore[arg-type, return-value]


async def nothing() -> None:
    """A tool without parameters."""


def test_there_are_at_most_a_thousand_tools() -> None:
    app = TxApp(Client(Shop().server))
    for number in range(1000):
        app.tool(name=f"tool {number}")(nothing)
    with pytest.raises(TxError, match="at most 1000"):
        app.tool(name="one too many")(nothing)
