"""Ten thousand tools are listed page by page, in every mode, and the gateway answers others meanwhile."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import listings_over_http, write_listing
from tests.real.delayed_servers import BY_WORDS, hundred
from tests.real.listing_text import sources
from tests.real.pipelined_calls import call_all
from tests.real.source_text_clients import legacy_http_client, modern_http_client, pages

START_SECONDS = 60.0
TOOLS = 10_000
NAMES = [f"{one['name']}_{number}" for number in range(TOOLS // 100) for one in hundred("works")]
# Far more than it takes: what this finds is a loop that is held up until everything is done.
LONGEST_ANSWER_SECONDS = 2.0


class Knocker(threading.Thread):
    """Asks the gateway again and again whether it is there."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__(daemon=True)
        self._gateway = gateway
        self._done = threading.Event()
        self.statuses: list[int] = []
        self.waits: list[float] = []

    def run(self) -> None:
        while not self._done.is_set():
            began = time.monotonic()
            self.statuses.append(self._gateway.get("/health").status)
            self.waits.append(time.monotonic() - began)

    def __enter__(self) -> "Knocker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(START_SECONDS)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that is still taking in what its server has."""
    place = tmp_path_factory.mktemp("many")
    (place / "shelves").mkdir()
    tools = [one | {"name": name} for name, one in zip(NAMES, hundred("works") * (TOOLS // 100), strict=True)]
    write_listing(place / "shelves" / "works.json", tools)
    with listings_over_http(place / "shelves") as origin:
        config = {"mcpServers": {"works": {"url": f"{origin}/works"}}}
        with running_gateway(
            config, place / "gateway", environment=BY_WORDS, wait_for_servers=False
        ) as gateway:
            yield gateway


def test_the_gateway_answers_while_every_mode_is_listed_for_the_first_time(gateway: GatewayProcess) -> None:
    with Knocker(gateway) as knocker:
        gateway.wait_until_ready("works", seconds=START_SECONDS)
        for mode in ListingMode:
            assert shown(gateway, mode)
    assert len(knocker.statuses) > 10
    assert set(knocker.statuses) == {200}
    assert max(knocker.waits) < LONGEST_ANSWER_SECONDS


def shown(gateway: GatewayProcess, mode: ListingMode) -> list[str]:
    with modern_http_client(f"{gateway.url}/{mode}") as client:
        return [one for page in pages(client) for one in sources(page)]


@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.SLIM])
def test_every_name_is_listed_once_and_the_pages_are_small(
    gateway: GatewayProcess, mode: ListingMode
) -> None:
    expected = [f"works_{name}" for name in NAMES]
    own = ["expandSchema"] if mode is ListingMode.SLIM else []
    for open_client in (legacy_http_client, modern_http_client):
        with open_client(f"{gateway.url}/{mode}") as client:
            listed = list(pages(client))
        names = [json.loads(one)["name"] for page in listed for one in sources(page)]
        assert names == own + expected
        assert len(listed) > 3
        assert max(map(len, listed)) < 300_000


@pytest.mark.parametrize("mode", [ListingMode.AUTO, ListingMode.BUDGET])
def test_what_must_fit_the_budget_does(gateway: GatewayProcess, mode: ListingMode) -> None:
    listed = shown(gateway, mode)
    assert 2_500 < count_tokens(f"[{','.join(listed)}]".encode()) <= 3_000


@pytest.mark.parametrize("mode", ListingMode)
def test_tools_of_every_page_are_called(gateway: GatewayProcess, mode: ListingMode) -> None:
    some = NAMES[::97]
    answers = call_all(f"{gateway.url}/{mode}", [(f"works_{name}", {}) for name in some])
    called = [answer["result"]["content"][1]["text"] for answer in answers]
    assert called == some
