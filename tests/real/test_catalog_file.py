"""proxy.db is a cache: whatever becomes of the file, no tool is lost and none is shown that is no more."""

import random
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from testkit.clients.streaming_http import Stateless
from testkit.gateway_process import running_gateway
from testkit.upstreams import tool
from testkit.waiting import wait_until
from tests.real.delayed_servers import (
    BY_WORDS,
    KNOWN,
    START_SECONDS,
    TOOLS,
    Yard,
    found,
    listed,
    met_village,
    put_back,
    states,
)


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """Servers that a gateway has met."""
    return met_village(tmp_path_factory.mktemp("village"))


@pytest.fixture
def yard(village: Yard) -> Yard:
    """The servers of the village, not answering yet, and the data of a gateway that knows them."""
    return put_back(village)


def spoil(path: Path, how: str) -> None:
    size = path.stat().st_size
    match how:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "half":
            path.write_bytes(path.read_bytes()[: size // 2])
        case "last page":
            path.write_bytes(path.read_bytes()[: size - 4096])
        case "noise":
            path.write_bytes(random.Random(7).randbytes(size))
        case "noise inside":
            content = bytearray(path.read_bytes())
            content[4096 : size - 4096] = random.Random(7).randbytes(size - 8192)
            path.write_bytes(content)
        case "another program's":
            path.unlink()
            with closing(sqlite3.connect(path)) as file:
                file.executescript("CREATE TABLE tools (name TEXT); INSERT INTO tools VALUES ('odd');")


SPOILT = ["deleted", "empty", "half", "last page", "noise", "noise inside", "another program's"]


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_is_gone_or_spoilt_costs_nothing_but_the_memory(yard: Yard, how: str) -> None:
    spoil(yard.catalog, how)
    yard.open()
    with yard.gateway() as gateway:
        gateway.wait_until_ready(*yard.names)
        assert listed(gateway) == KNOWN
        assert found(Stateless(gateway.url), "churn butter") == ["dairy_churn"]
    # The next start remembers again.
    assert yard.remembered() == {name: [one["name"] for one in tools] for name, tools in TOOLS.items()}


def test_a_reset_forgets_the_catalog_and_nothing_else(yard: Yard) -> None:
    for name in ("ledger.db", "audit.log", "knowledge.db", "proxy.db.bak"):
        (yard.data / name).write_text(f"the {name}")
    with closing(sqlite3.connect(yard.catalog)) as file, file:
        file.execute("INSERT INTO vectors VALUES ('digest', 'model', x'00')")
    others = {path: path.read_bytes() for path in yard.data.iterdir() if path.is_file() and is_kept(path)}
    assert len(others) > 4

    began = time.time()
    yard.open()
    with yard.gateway(MCPPROXY_RESET_DATA="true") as gateway:
        gateway.wait_until_ready(*yard.names)
        assert listed(gateway) == KNOWN

    assert {path: path.read_bytes() for path in others} == others
    with closing(sqlite3.connect(yard.catalog)) as file:
        assert file.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
        (first_seen,) = file.execute("SELECT min(first_seen) FROM tools").fetchone()
    assert first_seen > began


def is_kept(path: Path) -> bool:
    """Whether a reset has to leave it alone; the file of the state is written at any time."""
    return path.name != "proxy.db" and not path.name.startswith(("proxy.db-", "state.json"))


def test_a_gateway_that_is_killed_while_it_writes_never_shows_half_a_listing(tmp_path: Path) -> None:
    names = [f"shop{number}" for number in range(6)]
    yard = Yard(tmp_path, names)
    chance = random.Random(4711)
    for today in range(7):
        yard.shut()
        for name in names:
            yard.offer(name, *(tool(f"day{today}-{number}", "Sells something.") for number in range(80)))
        with yard.gateway() as gateway:
            if today:
                assert whole_days(listed(gateway)).keys() == set(names)
            yard.open()
            if not today:
                gateway.wait_until_ready(*names, seconds=START_SECONDS)
                continue
            wait_until(lambda: "ready" in states(gateway), START_SECONDS, "the first server is ready")
            # Somewhere between the first listing that is written and the last.
            time.sleep(chance.uniform(0.0, 0.1))
            gateway.kill()
    with yard.gateway() as gateway:
        gateway.wait_until_ready(*names, seconds=START_SECONDS)
        assert whole_days(listed(gateway)) == dict.fromkeys(names, "day6")


def whole_days(shown: list[str]) -> dict[str, str]:
    """The day of each server's listing, of which there must be all."""
    listings: dict[str, list[str]] = {}
    for name in shown:
        server, day, _ = name.split("_")
        listings.setdefault(server, []).append(day)
    for server, days in listings.items():
        assert len(days) == 80, f"{server}: {len(days)} tools"
        assert len(set(days)) == 1, f"{server}: {set(days)}"
    return {server: days[0] for server, days in listings.items()}


def test_gateways_that_start_at_once_share_one_file(yard: Yard) -> None:
    """As every window of an editor starts a gateway of its own."""
    shutil.rmtree(yard.data)
    yard.open()

    def live(number: int) -> tuple[list[str], str]:
        directory, shared = yard.place / f"window-{number}", ("--data-dir", str(yard.data))
        with running_gateway(yard.config(), directory, options=shared, environment=BY_WORDS) as gateway:
            gateway.wait_until_ready(*yard.names, seconds=START_SECONDS)
            return listed(gateway), gateway.log()

    with ThreadPoolExecutor() as windows:
        seen = list(windows.map(live, range(4)))

    for tools, log in seen:
        assert tools == KNOWN
        assert '"warning"' not in log
    assert yard.remembered() == {name: [one["name"] for one in tools] for name, tools in TOOLS.items()}
