"""Large results as the settings want them: what is kept, shown, listed, counted and said of it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headgate.app.stored_results import (
    listed_result_tools,
    open_stored_results,
    result_display_of,
    result_limits_of,
)
from headgate.catalog.listing_variant import ListingContext
from headgate.config.settings import Settings
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.protocol.protocol_version import Era
from headgate.results.large_results import TruncationSettings
from headgate.results.notices import MESSAGE
from headgate.results.result_store import ResultStoreLimits
from headgate.results.tools import NAMES
from headgate.web.metrics import CallMetrics, exposition
from tests.catalog.sample_listings import session
from tests.results.sample_results import facts_of, result, text
from tests.upstream.spool_limits import open_files
from tests.web.prometheus import parse

LARGE = result(text("\n".join(f"line {number}" for number in range(2000))))
STATELESS = ListingContext(era=Era.STATELESS)
SAID = "every local client of this gateway can read"


def settings(directory: Path = Path(), **more: Any) -> Settings:
    return Settings(data_dir=directory, **more)


def by_name(_request: McpRequest) -> bool:
    return True


def call() -> UpstreamCall:
    return UpstreamCall(
        McpRequest(caller=LOCAL_IDENTITY, name="bank_look"), Item(ItemKind.TOOLS, "bank", "look", "bank_look")
    )


def test_what_is_set_is_what_is_kept_and_shown() -> None:
    assert result_limits_of(settings()) == ResultStoreLimits()
    assert result_display_of(settings()) == TruncationSettings(message=MESSAGE)
    wanted = settings(
        max_response_size=5,
        max_response_tokens=6,
        enable_auto_truncation=False,
        truncation="head_tail",
        excerpt_size=4,
        truncation_message="see {cache_id}",
        compact_tables=True,
        cache_ttl_seconds=7.0,
        cache_max_entries=8,
        cache_max_bytes=9,
        enable_agent_isolation=False,
        max_entries_per_agent=10,
        max_memory_per_agent=11,
        max_total_agents=12,
    )
    assert result_display_of(wanted) == TruncationSettings(
        max_size=5,
        max_tokens=6,
        truncates=False,
        style="head_tail",
        excerpt_size=4,
        message="see {cache_id}",
        compact=True,
        kept_seconds=7.0,
    )
    assert result_limits_of(wanted) == ResultStoreLimits(
        max_entries=8,
        ttl_seconds=7.0,
        isolated=False,
        entries_per_agent=10,
        memory_per_agent=11,
        agents=12,
        max_bytes=9,
    )


def test_the_tools_that_read_results_are_listed_unless_somebody_wants_none() -> None:
    assert [reader.name for reader in listed_result_tools(settings())] == list(NAMES)
    assert listed_result_tools(settings(list_result_tools=False)) == ()


@pytest.mark.parametrize(
    ("listing_context", "more", "said"),
    [
        (session("one"), {}, False),
        # It is just shaking hands.
        (ListingContext(era=Era.HANDSHAKE), {}, False),
        (ListingContext(era=Era.STATELESS, caller=Identity(principal="alice")), {}, False),
        (STATELESS, {}, True),
        (session("one"), {"enable_agent_isolation": False}, True),
        (ListingContext(era=Era.HANDSHAKE), {"enable_agent_isolation": False}, True),
        (
            ListingContext(era=Era.STATELESS, caller=Identity(principal="alice")),
            {"enable_agent_isolation": False},
            True,
        ),
        (STATELESS, {"enable_auto_truncation": False}, False),
    ],
)
async def test_a_model_is_told_where_others_can_read_its_results(
    tmp_path: Path, listing_context: ListingContext, more: dict[str, Any], *, said: bool
) -> None:
    async with open_stored_results(settings(tmp_path, **more), by_name) as results:
        assert (SAID in results.instructions(listing_context)) is said


async def test_what_happens_to_results_is_counted(tmp_path: Path) -> None:
    async with open_stored_results(settings(tmp_path), by_name) as results:
        # Before the first call there is nothing but zeros.
        assert set(results.gauges().values()) == {0}
        assert set(results.counters().values()) == {0}
        responses = results.large_results
        answer = await responses.truncate_if_large(call(), McpResponse(LARGE))
        assert isinstance(answer.result, bytes)
        cache_id = facts_of(answer.result)["cache_id"]
        wish = await responses.parse_read_request(asked(cache_id))
        await responses.read_stored(asked(cache_id), wish)
        gauges = {(name, ""): value for name, value in results.gauges().items()}
        page = exposition(CallMetrics(), [], gauges, results.counters())
    families = parse(page.decode())

    def value(name: str, **labels: str) -> float:
        return families[f"headgate_{name}"].value(f"headgate_{name}", **labels)

    assert value("results_stored") == 1
    assert value("result_bytes") == len(LARGE)
    assert value("result_agents") == 1
    assert value("result_hits_total") == 1
    assert value("results_excerpted_total") == 1
    assert value("result_reads_total", tool="proxy_read") == 1
    # To read it was more than is done at once.
    assert value("result_jobs_total") == 1
    assert value("result_tokens_saved") > 0


def asked(cache_id: str) -> McpRequest:
    arguments = Raw(b'{"cache_id":"%b","limit":1}' % cache_id.encode())
    return McpRequest(caller=LOCAL_IDENTITY, name="proxy_read", params={"arguments": arguments})


@pytest.mark.parametrize("isolated", [True, False])
async def test_who_is_gone_leaves_nothing_unless_it_is_everybodys(tmp_path: Path, *, isolated: bool) -> None:
    async with open_stored_results(settings(tmp_path, enable_agent_isolation=isolated), by_name) as results:
        await results.store.put("one", b"a", "tool", b"{}")
        await results.store.put("two", b"b", "tool", b"{}")
        await results.clear_agent("one")
        assert await results.store.size() == (1 if isolated else 2)
    assert open_files(tmp_path) == []
    assert not [task for task in asyncio.all_tasks() if "result" in task.get_name()]


_AT_ONCE = """
import asyncio
from pathlib import Path
from headgate.app.stored_results import open_stored_results
from headgate.config.settings import Settings

async def load(directory):
    async with open_stored_results(Settings(data_dir=Path(directory)), lambda request: True) as results:
        works = await asyncio.gather(*(results._load_job_runner() for _ in range(20)))
        print(sum(hasattr(work, "run_job") and hasattr(work, "validate_job") for work in works))

import sys
asyncio.run(load(sys.argv[1]))
"""


def test_those_who_come_while_the_work_is_loaded_get_all_of_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _AT_ONCE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert ended.stdout.strip() == "20"
