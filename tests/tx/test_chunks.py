"""Large results in chunks: whole, checked, and gone on with where they broke off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp import Client

from headgate.tx import RetryPolicy, TxConfig, TxError, TxSession
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop
from testkit.virtual_time import RecordingSleep

WORDS = 4000
ONCE = RetryPolicy(max_attempts=1)


@asynccontextmanager
async def at(shop: Shop, mode: str = "auto", config: TxConfig | None = None) -> AsyncIterator[TxSession]:
    """A session of a shop in the same process."""
    async with TxSession(Client(shop.server, mode=mode), config, sleep=RecordingSleep()) as tx:
        yield tx


def fetched(shop: Shop) -> list[int]:
    """The chunks that were asked for, in order of number."""
    return sorted(params["index"] for params in shop.asked("rmcp/chunk"))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_result_in_chunks_is_the_result(mode: str) -> None:
    shop = Shop(FEATURES)
    async with at(shop, mode) as tx:
        answer = await tx.call_tool("big", {"size": WORDS})
    result = answer.unwrap()
    assert result.content[0].text == "é" * WORDS
    assert "chunked" not in result.meta["rmcp"]
    assert answer.ack
    count = len(fetched(shop))
    assert count > 8
    assert fetched(shop) == list(range(count))


async def test_a_flipped_byte_is_fetched_again() -> None:
    shop = Shop(FEATURES)
    shop.flips = [2]
    async with at(shop) as tx:
        answer = await tx.call_tool("big", {"size": WORDS})
    assert answer.unwrap().content[0].text == "é" * WORDS
    assert fetched(shop).count(2) == 2


async def test_a_byte_that_stays_flipped_is_an_integrity_error() -> None:
    shop = Shop(FEATURES)
    shop.flips = [2] * 9
    async with at(shop) as tx:
        answer = await tx.call_tool("big", {"size": WORDS}, retry_policy=ONCE)
    assert (answer.final_status, answer.error_code, answer.processed) == ("failed", "INTEGRITY_ERROR", True)
    with pytest.raises(TxError, match="chunk 2 of"):
        answer.unwrap()


async def test_a_transfer_that_broke_off_is_gone_on_with() -> None:
    shop = Shop(FEATURES)
    shop.lost_chunks = [5, 5, 5]
    async with at(shop) as tx:
        answer = await tx.call_tool("big", {"size": WORDS}, retry_policy=ONCE)
        assert (answer.error_code, answer.processed) == ("NETWORK_ERROR", True)
        had = set(fetched(shop)) - {5}
        before = len(shop.asked("rmcp/chunk"))
        answer = await tx.call_tool("big", {"size": WORDS})
        again = {params["index"] for params in shop.asked("rmcp/chunk")[before:]}
    assert answer.unwrap().content[0].text == "é" * WORDS
    assert 5 in again
    # At most those that were on their way when the fifth was lost are fetched twice.
    assert len(again & had) <= 3


async def test_a_result_larger_than_allowed_is_not_fetched() -> None:
    shop = Shop(FEATURES)
    async with at(shop, config=TxConfig(max_transfer_bytes=1000)) as tx:
        answer = await tx.call_tool("big", {"size": WORDS}, retry_policy=ONCE)
    assert answer.error_code == "INTEGRITY_ERROR"
    assert fetched(shop) == []
