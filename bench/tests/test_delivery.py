"""Section `delivery` measures what it says: each call with its own key, ratios of one round, a real kill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.delivery.goals import goals
from bench.delivery.keyed import META, Round, Sample, summary
from bench.delivery.ledger_gateway import KEPT, RESULT_BYTES, SERVER, TOOL, Tallied, gateway
from bench.delivery.library import weight
from bench.delivery.page import blocks
from bench.delivery.plain import AGAIN, NOW
from bench.delivery.recovery import states_of, written_and_killed
from bench.load.client import Client
from bench.load.delivery_options import NUMBER, Ticket
from bench.load.expected import FIRST_ID
from bench.load.generator import generator
from bench.load.plan import Era, Outcome, Plan
from bench.pages import Whole, filled
from bench.tests.delivery_example import FIGURE, MEASURED
from headgate.delivery.ledger import OperationState
from headgate.storage.sqlite.ledger import LEDGER_NAME

ERAS: list[Era] = ["legacy", "modern"]
KEY_OF: dict[str, Callable[[dict[str, str], dict[str, Any]], object]] = {
    "meta": lambda headers, meta: meta["io.headgate/idempotencyKey"],
    "header": lambda headers, meta: headers["Idempotency-Key"],
    "rmcp": lambda headers, meta: meta["rmcp"]["idempotency_key"],
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["meta", "header", "rmcp"])
def test_every_call_has_a_key_of_its_own(way: Any, era: Era) -> None:
    pieces = Client(80, era, delivery_request=Ticket(way=way, key=f"k-{NUMBER}")).call_bytes("pay")
    for number in (FIRST_ID, FIRST_ID + 1):
        headers, body = _read(str(number).encode().join(pieces))
        message = json.loads(body)
        assert message["id"] == number
        assert int(headers["Content-Length"]) == len(body)
        assert KEY_OF[way](headers, message["params"].get("_meta", {})) == f"k-{number}"


def test_a_plain_call_says_nothing_of_its_delivery() -> None:
    pieces = Client(80, "legacy").call_bytes("pay")
    headers, body = _read(b"1000000".join(pieces))
    assert len(pieces) == 2
    assert "_meta" not in json.loads(body)["params"]
    assert "Idempotency-Key" not in headers


def _read(request: bytes) -> tuple[dict[str, str], str]:
    head, _, body = request.decode().partition("\r\n\r\n")
    return dict(line.split(": ", 1) for line in head.splitlines()[1:]), body


def test_a_ratio_is_taken_within_a_round() -> None:
    # Everything took ten times as long in the second round, keyed calls twice as long as plain ones in both.
    rounds = [_round(plain=0.001, keyed=0.002), _round(plain=0.010, keyed=0.020)]
    found = summary(META, 1, rounds)
    assert (found.p50_ratio.low, found.p50_ratio.high) == (2.0, 2.0)
    assert found.added_p50_ms.median == pytest.approx(5.5)


def _round(*, plain: float, keyed: float) -> Round:
    return {"plain": Sample(_outcome(plain), 0.0), META: Sample(_outcome(keyed), 2.0)}


def _outcome(seconds: float) -> Outcome:
    return Outcome(
        calls=10,
        errors=0,
        given_up=0,
        first_error="",
        elapsed=1.0,
        cpu=seconds,
        generator_cpu=0.0,
        p50=seconds,
        p99=seconds,
    )


@pytest.mark.parametrize(("ours", "met"), [(1.03, True), (1.05, False)])
def test_a_plain_call_may_differ_as_much_as_the_same_code_from_itself(ours: float, *, met: bool) -> None:
    noise = msgspec.structs.replace(FIGURE, median=1.0, low=0.97, high=1.04)
    now = msgspec.structs.replace(FIGURE, median=ours)
    lines = [
        msgspec.structs.replace(one, cpu_ratio=now if one.code == NOW else noise)
        for one in MEASURED.plain
        if one.code in (NOW, AGAIN)
    ]
    judged = goals(msgspec.structs.replace(MEASURED, plain=lines))
    assert [one.met for one in judged if "CPU, legacy" in one.text] == [met]


def test_calls_that_failed_are_no_success_whatever_the_others_took() -> None:
    wrong = [msgspec.structs.replace(one, errors=1) for one in MEASURED.keyed]
    judged = {one.text: one.met for one in goals(msgspec.structs.replace(MEASURED, keyed=wrong))}
    assert not judged["every call answered rightly"]


def test_a_killed_ledger_has_its_rows_and_what_was_under_way(tmp_path: Path) -> None:
    written_and_killed(tmp_path, rows=20, left_open=6)
    assert states_of(tmp_path / LEDGER_NAME) == {OperationState.DONE: 14, OperationState.INTENT: 6}


def test_calls_with_a_key_go_through_a_gateway_and_are_written_twice_each() -> None:
    with gateway({SERVER: {}, KEPT: {"ledger": "all"}}) as gateway_process, generator() as load:
        tallied = Tallied(gateway_process)
        plan = Plan(
            tool=f"{SERVER}_{TOOL}",
            result_bytes=RESULT_BYTES,
            lanes=1,
            seconds=10.0,
            calls=5,
            warm_up_seconds=0.0,
            port=gateway_process.port,
            pid=gateway_process.pid,
            delivery_request=Ticket(way="rmcp", key=f"k-{NUMBER}"),
        )
        outcome = load.run(plan)
        assert (outcome.calls, outcome.first_error) == (5, "")
        assert tallied.commits() >= 10
        tallied = Tallied(gateway_process)
        # Nothing is recorded of a plain one, and every call of a server that is kept is.
        load.run(msgspec.structs.replace(plan, delivery_request=Ticket()))
        assert tallied.commits_per_call() < 1
        load.run(msgspec.structs.replace(plan, delivery_request=Ticket(), tool=f"{KEPT}_{TOOL}"))
        assert tallied.commits() >= 10


async def test_a_session_of_the_library_weighs_something() -> None:
    weighed = await weight()
    assert 100 < weighed.session < 100_000
    assert 100 < weighed.key < 100_000


def test_a_page_gets_its_figures_and_keeps_the_rest() -> None:
    whole = Whole(
        machine={"cores": "2", "processor": "any", "system": "Linux", "python": "3.11"},
        load_before=0.1,
        load_after=0.2,
        goals=goals(MEASURED),
    )
    result = msgspec.json.encode(msgspec.to_builtins(MEASURED) | msgspec.to_builtins(whole))
    page = "Before.\n<!-- figures: all -->\nold\n<!-- end -->\nAfter.\n"
    written = filled(page, blocks(result))
    assert written.startswith("Before.\n<!-- figures: all -->\n2 cores")
    assert written.endswith("<!-- end -->\nAfter.\n")
    assert "old" not in written
    assert "| a transaction of 3 steps |" in written
    assert "| every call answered rightly |" in written
