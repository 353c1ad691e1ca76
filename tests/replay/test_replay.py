"""The gateway loses and changes nothing that a real server sent, except for a closed list."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testkit.gateway_process import GatewayProcess
from tests.replay import differences
from tests.replay.recording import LISTS, Conversation, conversations, respelled
from tests.replay.recording_clients import guest, guests
from tests.replay.replay_gateway import Stage, ask, staged, told

ERAS = ["handshake", "stateless"]
CAST = {played.server: played for played in conversations()}
# With the same URIs as another, so that the gateway must tell the two apart.
CAST["twin"] = CAST["everything"]
SPELLINGS = {"recorded": CAST, "respelled": {server: respelled(played) for server, played in CAST.items()}}
# Of both eras, with every kind of listing, notifications, errors and a listing that may be kept among them.
ALONE = ["everything", "mapbox", "sqlite", "mongodb", "dbhub", "home-assistant"]
REQUESTS = [(server, number) for server, played in CAST.items() for number in range(len(played.requests))]
PROGRESS = "notifications/progress"


@pytest.fixture(scope="module", params=SPELLINGS)
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One gateway in front of all of them."""
    spelling = [] if request.param == "recorded" else [request.param]
    with staged(SPELLINGS[request.param], tmp_path_factory.mktemp("together"), *spelling) as stage:
        yield stage


@pytest.fixture(scope="module", params=ALONE)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway in front of one, which lets its names pass."""
    cast = {request.param: CAST[request.param]}
    with staged(cast, tmp_path_factory.mktemp("alone"), prefix=False) as stage:
        yield stage


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", LISTS)
def test_every_listed_item_arrives_byte_for_byte(together: Stage, era: str, method: str) -> None:
    check_listing(together, era, method)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", LISTS)
def test_every_listed_item_arrives_byte_for_byte_without_prefix(alone: Stage, era: str, method: str) -> None:
    check_listing(alone, era, method)

    with guest(alone.gateway, era) as client:
        assert [item.public for item in alone.mapped(client, method)] == [
            item.name for item in alone.mapped(client, method)
        ]


@pytest.fixture(scope="module")
def truncating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One gateway in front of all of them that truncates large results, which is the default."""
    with staged(CAST, tmp_path_factory.mktemp("truncating"), enableAutoTruncation=True) as stage:
        yield stage


@pytest.mark.parametrize("era", ERAS)
def test_where_results_are_truncated_only_closed_output_schemas_are_missing(
    truncating: Stage, era: str
) -> None:
    check_listing(truncating, era, "tools/list", truncated=True)

    originals = [json.loads(text) for _, text in truncating.originals("tools/list")]
    closed = [tool["name"] for tool in originals if differences.is_closed(tool.get("outputSchema", {}))]
    assert "read_text_file" in closed
    assert len(closed) < len([tool for tool in originals if "outputSchema" in tool]) / 2


def check_listing(stage: Stage, era: str, method: str, *, truncated: bool = False) -> None:
    _, key = LISTS[method]
    with guest(stage.gateway, era) as client:
        found = stage.mapped(client, method)
    originals = stage.originals(method)

    for item, (server, original) in zip(found, originals, strict=True):
        expected = differences.definition(original, key, item.public, truncated=truncated)
        assert item.text == expected, (server, item.name)


@pytest.mark.parametrize("era", ERAS)
def test_names_follow_the_rule_and_are_distinct(together: Stage, era: str) -> None:
    with guest(together.gateway, era) as client:
        for method in ("tools/list", "prompts/list"):
            found = together.mapped(client, method)
            assert len({item.public for item in found}) == len(found)
            for item in found:
                plain = differences.plain_name(item.server, item.name)
                short = len(plain) <= differences.LONGEST_NAME
                # Of a long name the server part yields, and the tool's own name stays.
                own = differences.plain_name("", item.name).strip("_")
                assert item.public == plain if short else own[:30] in item.public, item.public


@pytest.mark.parametrize("era", ERAS)
def test_uris_stay_and_of_several_servers_one_keeps_it(together: Stage, era: str) -> None:
    with guest(together.gateway, era) as client:
        for method in ("resources/list", "resources/templates/list"):
            found = together.mapped(client, method)
            assert {item.public for item in found if item.public == item.name} == {
                item.name for item in found
            }
            for item in found:
                assert item.public in (item.name, f"headgate://{item.server}/{item.name}")
            assert len({item.public for item in found}) == len(found)


@pytest.mark.parametrize("era", ERAS)
def test_every_answer_and_what_is_told_before_it_arrives(together: Stage, era: str) -> None:
    check_answers(together, era)


@pytest.mark.parametrize("era", ERAS)
def test_every_answer_and_what_is_told_before_it_arrives_without_prefix(alone: Stage, era: str) -> None:
    check_answers(alone, era)


def check_answers(stage: Stage, era: str) -> None:
    with guest(stage.gateway, era) as client:
        names = stage.names(client)
        for server, played in stage.cast.items():
            for exchange in played.requests:
                heard = ask(stage, client, server, exchange, names)
                assert heard.told == told(exchange, f"of {server}"), (server, exchange.key[:200])


@pytest.mark.parametrize("era", ERAS)
def test_what_stands_around_a_listing_is_what_the_era_wants(alone: Stage, era: str) -> None:
    (played,) = alone.cast.values()
    for method in LISTS:
        with guest(alone.gateway, era) as client:
            _, pages = alone.pages(client, method)

        hints = caching(played, method)
        assert pages == [{} if era == "handshake" else {"resultType": '"complete"'} | hints] * len(pages)


def caching(played: Conversation, method: str) -> dict[str, str]:
    """How long a server says that its listing may be kept; one that does not say so means: not at all."""
    said = {}
    for page in played.pages(method):
        said = json.loads(page.result or "{}")
    return {
        "ttlMs": json.dumps(said.get("ttlMs", 0)),
        "cacheScope": json.dumps(said.get("cacheScope", "private")),
    }


@pytest.mark.parametrize("era", ERAS)
def test_the_advice_of_every_server_arrives(together: Stage, era: str) -> None:
    advice = [
        played.greeting["instructions"] for played in CAST.values() if played.greeting.get("instructions")
    ]

    assert len(advice) >= 5
    assert all(text in instructions(together.gateway, era) for text in advice)


@pytest.mark.parametrize("era", ERAS)
def test_the_advice_of_one_server_arrives_as_it_is(alone: Stage, era: str) -> None:
    (played,) = alone.cast.values()

    assert instructions(alone.gateway, era) == played.greeting.get("instructions", "")


def instructions(gateway: GatewayProcess, era: str) -> str:
    with guest(gateway, era) as client:
        greeting = client.greeting if era == "handshake" else client.ask("server/discover", {}).content
    return str(json.loads(greeting).get("instructions", ""))


# Without shrinking: what goes wrong when requests meet does not go wrong again because they do.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    script=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(REQUESTS)), min_size=20, max_size=60),
)
def test_no_answer_is_taken_for_another_however_they_mix(
    together: Stage, script: list[tuple[int, tuple[str, int]]]
) -> None:
    with guests(together.gateway, ERAS * 3) as clients, ThreadPoolExecutor(len(clients)) as threads:
        names = together.names(clients[0])

        def play(number: int) -> None:
            for turn, (server, request) in script:
                if turn == number:
                    exchange = together.cast[server].requests[request]
                    heard = ask(together, clients[number], server, exchange, names)
                    assert [part for part in heard.told if part[0] == PROGRESS] == [
                        part for part in told(exchange, f"of {server}") if part[0] == PROGRESS
                    ]

        for done in [threads.submit(play, number) for number in range(len(clients))]:
            done.result()
