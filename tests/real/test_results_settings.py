"""What operators set about large results holds for the clients of a real gateway."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration
from testkit.waiting import wait_until
from tests.real.delayed_servers import call, listed
from tests.real.large_results import (
    QUESTIONS,
    READERS,
    buried,
    id_of,
    is_whole,
    quarry_entry,
    said,
    texts,
    unknown,
)

START_SECONDS = 60.0
MARKER = " <truncated by smart mcp proxy> "
USERS: Message = {"users": [{"id": number, "name": f"user{number}"} for number in range(1000)]}
LARGE = said(json.dumps(USERS))

Start = Callable[..., GatewayProcess]


def started(
    start_gateway: Start, *, environment: dict[str, str] | None = None, **settings: Any
) -> GatewayProcess:
    """A gateway before the quarry."""
    config = configuration({"quarry": quarry_entry()}, **({"listResultTools": True} | settings))
    gateway = start_gateway(config, environment=environment, start_seconds=START_SECONDS)
    gateway.wait_until_ready("quarry", seconds=START_SECONDS)
    return gateway


def test_an_expired_id_is_answered_as_one_that_nobody_has(start_gateway: Start, tmp_path: Path) -> None:
    gateway = started(start_gateway, cacheTTLSeconds=1)
    client = Handshaker(gateway.url)
    cache_id = id_of(call(client, "quarry_dig", file=buried(tmp_path, LARGE)))

    # Asking again and again does not make it live longer.
    wait_until(
        lambda: bool(call(client, "proxy_read", cache_id=cache_id).get("isError")), 10, "it has expired"
    )

    for tool in READERS:
        expired = call(client, tool, cache_id=cache_id, **QUESTIONS[tool])
        nobody = call(client, tool, cache_id="f" * 24, **QUESTIONS[tool])
        assert texts(expired) == [unknown(cache_id)]
        assert json.dumps(expired) == json.dumps(nobody).replace("f" * 24, cache_id)


def test_head_and_tail_are_shown_where_the_environment_says_so(start_gateway: Start, tmp_path: Path) -> None:
    environment = {"MCPPROXY_TRUNCATE_OUTPUT_LEN": "200"}
    gateway = started(start_gateway, environment=environment, enableAgentIsolation=False)
    whole = LARGE["content"][0]["text"]
    ann, bob = Handshaker(gateway.url), Handshaker(gateway.url)

    cut = call(ann, "quarry_dig", file=buried(tmp_path, LARGE))

    shown, _ = texts(cut)
    head, tail = shown.split(MARKER)
    assert len(shown) == 200
    assert whole.startswith(head)
    assert tail == whole[-50:]
    assert is_whole(call(ann, "quarry_dig", file=buried(tmp_path, said("x" * 200))))
    # The original is kept all the same, and for everybody where agents are not told apart.
    for client in (ann, bob, Stateless(gateway.url)):
        counted = call(client, "proxy_query", cache_id=id_of(cut), sql="SELECT count(*) FROM rows")
        assert json.loads(texts(counted)[0])["rows"] == [[1000]]
    assert "every local client" in ann.welcome["instructions"]


@pytest.mark.parametrize("limit", [1, 50, 131, 132, 1000, 100_000_000])
def test_head_and_tail_never_make_an_answer_longer(start_gateway: Start, tmp_path: Path, limit: int) -> None:
    gateway = started(start_gateway, environment={"MCPPROXY_TRUNCATE_OUTPUT_LEN": str(limit)})
    client = Handshaker(gateway.url)
    cut = 0
    for more in (-1, 0, 1, 31, 33, 200, 300, 400, 600, 1000, 3000):
        length = max(0, min(limit, 5000) + more)
        words = "".join(chr(ord("a") + number % 26) for number in range(length))
        third = [words[: length // 3], words[length // 3 : length // 2], words[length // 2 :]]
        for result in (said(words), said(*third), said(words, structuredContent={"result": words})):
            shown = call(client, "quarry_dig", file=buried(tmp_path, result))
            if is_whole(shown):
                assert shown == result
                continue
            cut += 1
            assert sum(map(len, texts(shown))) < length
            assert len(json.dumps(shown)) < len(json.dumps(result))
            assert id_of(shown) in texts(shown)[-1]
    assert bool(cut) is (limit <= 5000)


def test_tools_that_are_not_listed_are_called_all_the_same(start_gateway: Start, tmp_path: Path) -> None:
    gateway = started(start_gateway, listResultTools=False)
    client = Handshaker(gateway.url)

    cut = call(client, "quarry_dig", file=buried(tmp_path, LARGE))

    assert listed(gateway) == ["quarry_dig"]
    for wrapped in (False, True):
        asked = {"cache_id": id_of(cut), "pattern": "user999"}
        call_it = (
            ("call_tool", {"name": "proxy_search", "args": asked}) if wrapped else ("proxy_search", asked)
        )
        reply = call(client, call_it[0], **call_it[1])
        assert json.loads(texts(reply)[0]) == {"users": USERS["users"][-1:]}


def test_one_server_without_a_prefix_has_its_own_names_and_the_tools_theirs(
    start_gateway: Start, tmp_path: Path
) -> None:
    gateway = started(start_gateway, prefix=False, maxResponseSize=500)
    client = Stateless(gateway.url)
    file = buried(tmp_path, LARGE)

    assert [*listed(gateway)] == ["dig", *READERS]
    cut = call(client, "dig", file=file)
    again = call(client, "proxy_filter", tool="dig", arguments={"file": file}, fields=["users[0]"])

    assert sum(map(len, texts(cut))) <= 500
    for cache_id in (id_of(cut), id_of(again)):
        for tool in READERS:
            reply = call(client, tool, cache_id=cache_id, **QUESTIONS[tool])
            assert not reply.get("isError")
            assert len(texts(reply)[0]) <= 500


def test_nothing_is_cut_where_nothing_is_to_be_cut(start_gateway: Start, tmp_path: Path) -> None:
    gateway = started(start_gateway, enableAutoTruncation=False)

    result = call(Handshaker(gateway.url), "quarry_dig", file=buried(tmp_path, LARGE))

    assert result == LARGE
    assert "every local client" not in str(Stateless(gateway.url).ask("server/discover", {}))


def test_the_limit_may_be_one_of_tokens_and_the_notice_in_the_words_of_the_operator(
    start_gateway: Start, tmp_path: Path
) -> None:
    gateway = started(
        start_gateway, maxResponseTokens=100, truncationMessage="{size} in {cache_id} of {braces}"
    )
    client = Handshaker(gateway.url)

    assert is_whole(call(client, "quarry_dig", file=buried(tmp_path, said("word " * 40))))
    cut = call(client, "quarry_dig", file=buried(tmp_path, said("word " * 400)))
    assert texts(cut)[-1] == f"2,000 in {id_of(cut)} of {{braces}}"
