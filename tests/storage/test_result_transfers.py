"""Very large results go in parts to clients that can put them together, and to no others."""

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headgate.delivery.errors import TransferNotFound
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.storage.files.result_transfers import CHUNK_BYTES, ResultTransfers, open_transfers
from tests.gateway_harness import Large

ABOVE = 1000
ABLE = DeliveryRequest(features=frozenset({"chunking", "ack"}))


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def transfers(tmp_path: Path, clock: Clock | None = None, **more: Any) -> ResultTransfers:
    return ResultTransfers(tmp_path / "transfers", ABOVE, clock or Clock(), **more)


def result(size: int) -> bytes:
    return b'{"content":[],"x":"%s"}' % (os.urandom(size // 2 + 1).hex().encode()[:size])


def asking(method: str = "tools/call", caller: Identity = LOCAL_IDENTITY, **params: Any) -> McpRequest:
    members = {key: Raw(json.dumps(value).encode()) for key, value in params.items()}
    return McpRequest(caller=caller, method=method, params=members, delivery_request=ABLE)


async def offered(
    desk: ResultTransfers, content: bytes | Large, caller: Identity = LOCAL_IDENTITY
) -> dict[str, Any]:
    answer = await desk.announce_chunks(
        asking(caller=caller), McpResponse(content, typed=True, delivery_status=DeliveryStatus(op_id="o"))
    )
    assert isinstance(answer.result, bytes)
    assert not answer.typed
    assert answer.delivery_status == DeliveryStatus(op_id="o")
    chunked: dict[str, Any] = json.loads(answer.result)["_meta"]["rmcp"]["chunked"]
    return chunked


async def part(desk: ResultTransfers, id: str, index: int, caller: Identity = LOCAL_IDENTITY) -> bytes:
    answer = await desk.read_chunk(asking("rmcp/chunk", caller, transfer_id=id, index=index))
    assert isinstance(answer.result, bytes)
    chunk = json.loads(answer.result)
    data = base64.b64decode(chunk["data"])
    assert (chunk["transfer_id"], chunk["index"]) == (id, index)
    assert hashlib.sha256(data).hexdigest() == chunk["sha256"]
    return data


@pytest.mark.parametrize(
    ("delivery_request", "answer", "concerned"),
    [
        (ABLE, McpResponse(result(ABOVE)), True),
        (ABLE, McpResponse(Large(result(ABOVE))), True),
        (ABLE, McpResponse(b"{}" + b" " * (ABOVE - 2)), False),
        (ABLE, McpResponse(error=b"e" * 2 * ABOVE), False),
        (DeliveryRequest(features=frozenset({"ack"})), McpResponse(result(ABOVE)), False),
        (DeliveryRequest(key="k"), McpResponse(result(ABOVE)), False),
        (None, McpResponse(result(ABOVE)), False),
    ],
)
def test_only_a_large_result_for_a_client_that_negotiated_it_goes_in_parts(
    tmp_path: Path, delivery_request: DeliveryRequest | None, answer: McpResponse, *, concerned: bool
) -> None:
    request = McpRequest(caller=LOCAL_IDENTITY, delivery_request=delivery_request)
    assert transfers(tmp_path).needs_chunks(request, answer) is concerned


@pytest.mark.parametrize("size", [ABOVE, CHUNK_BYTES - 23, CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
async def test_the_parts_are_the_result_to_the_byte_in_any_order_and_any_number_of_times(
    tmp_path: Path, size: int
) -> None:
    desk, whole = transfers(tmp_path), result(size)
    chunked = await offered(desk, whole)
    assert (chunked["size"], chunked["chunk_size"]) == (len(whole), CHUNK_BYTES)
    id, total = chunked["transfer_id"], chunked["total"]
    backwards = {index: await part(desk, id, index) for index in reversed(range(total))}
    assert b"".join(backwards[index] for index in range(total)) == whole
    assert hashlib.sha256(whole).hexdigest() == chunked["sha256"]
    assert await part(desk, id, 0) == backwards[0]
    desk.close()


async def test_a_result_on_disk_is_taken_over_and_closed(tmp_path: Path) -> None:
    desk, large = transfers(tmp_path), Large(result(ABOVE))
    chunked = await offered(desk, large)
    assert large.closed
    assert len(await part(desk, chunked["transfer_id"], 0)) == large.size
    desk.close()


@pytest.mark.parametrize("other", [Identity(principal="bob"), Identity(principal="ann", tenant="elsewhere")])
async def test_an_id_of_somebody_else_is_an_unknown_id(tmp_path: Path, other: Identity) -> None:
    desk = transfers(tmp_path)
    id = (await offered(desk, result(ABOVE), Identity(principal="ann")))["transfer_id"]
    with pytest.raises(TransferNotFound) as foreign:
        await part(desk, id, 0, other)
    with pytest.raises(TransferNotFound) as unknown:
        await part(desk, "x" * len(id), 0, other)
    assert str(foreign.value).replace(id, "") == str(unknown.value).replace("x" * len(id), "")
    with pytest.raises(TransferNotFound):
        await desk.read_chunk(asking("rmcp/chunk_done", Identity(principal="bob"), transfer_id=id))
    assert await part(desk, id, 0, Identity(principal="ann"))
    desk.close()


async def test_a_client_that_is_done_has_nothing_left(tmp_path: Path) -> None:
    desk = transfers(tmp_path)
    id = (await offered(desk, result(ABOVE)))["transfer_id"]
    assert (await desk.read_chunk(asking("rmcp/chunk_done", transfer_id=id))).result == b"{}"
    assert len(desk) == 0
    with pytest.raises(TransferNotFound):
        await part(desk, id, 0)


async def test_a_transfer_is_kept_for_ten_minutes_after_its_last_use(tmp_path: Path) -> None:
    clock = Clock()
    desk = transfers(tmp_path, clock)
    id = (await offered(desk, result(ABOVE)))["transfer_id"]
    clock.now += 599
    await part(desk, id, 0)
    clock.now += 599
    await part(desk, id, 0)
    clock.now += 600
    with pytest.raises(TransferNotFound):
        await part(desk, id, 0)
    assert len(desk) == 0


async def test_of_too_many_transfers_the_one_that_was_idle_longest_goes(tmp_path: Path) -> None:
    async with open_transfers(tmp_path / "transfers", ABOVE, Clock(), most=2) as desk:
        first, second = [(await offered(desk, result(ABOVE)))["transfer_id"] for _ in range(2)]
        await part(desk, first, 0)
        third = (await offered(desk, result(ABOVE)))["transfer_id"]
        with pytest.raises(TransferNotFound):
            await part(desk, second, 0)
        assert await part(desk, first, 0)
        assert await part(desk, third, 0)
    assert len(desk) == 0
    assert list((tmp_path / "transfers").iterdir()) == []


async def test_whoever_has_many_transfers_crowds_nobody_else_out(tmp_path: Path) -> None:
    ann, bob = Identity(principal="ann"), Identity(principal="bob")
    async with open_transfers(tmp_path / "transfers", ABOVE, Clock(), most=3) as desk:
        hers = (await offered(desk, result(ABOVE), ann))["transfer_id"]
        his = [(await offered(desk, result(ABOVE), bob))["transfer_id"] for _ in range(5)]
        assert await part(desk, hers, 0, ann)
        assert await part(desk, his[-1], 0, bob)
        with pytest.raises(TransferNotFound):
            await part(desk, his[0], 0, bob)
        assert len(desk) == 3


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("rmcp/chunk", {}, "transfer_id is not given"),
        ("rmcp/chunk", {"index": 0}, "transfer_id is not given"),
        ("rmcp/chunk", {"transfer_id": 5, "index": 0}, "transfer_id must be a text"),
        ("rmcp/chunk", {"transfer_id": "ID"}, "index is not given"),
        ("rmcp/chunk", {"transfer_id": "ID", "index": "0"}, "index must be a whole number"),
        ("rmcp/chunk_done", {}, "transfer_id is not given"),
    ],
)
async def test_a_question_that_makes_no_sense_says_what_would(
    tmp_path: Path, method: str, params: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await transfers(tmp_path).read_chunk(asking(method, **params))
    assert refused.value.message == f"{method}: {problem}"


@pytest.mark.parametrize("index", [-1, 1, 2**62])
async def test_a_part_that_there_is_not_is_refused(tmp_path: Path, index: int) -> None:
    desk = transfers(tmp_path)
    id = (await offered(desk, result(ABOVE)))["transfer_id"]
    with pytest.raises(InvalidArguments, match="index is 0 to 0"):
        await part(desk, id, index)
    desk.close()


async def test_a_disk_that_takes_nothing_costs_nobody_a_result(tmp_path: Path) -> None:
    (tmp_path / "transfers").write_text("no directory")
    desk, large = transfers(tmp_path), Large(result(ABOVE))
    answer = McpResponse(large)
    assert await desk.announce_chunks(asking(), answer) is answer
    assert not large.closed


def test_its_methods_are_known() -> None:
    desk = ResultTransfers(Path("x"), ABOVE, Clock())
    assert [desk.is_chunk_method(method) for method in ("rmcp/chunk", "rmcp/chunk_done", "tools/call")] == [
        True,
        True,
        False,
    ]
