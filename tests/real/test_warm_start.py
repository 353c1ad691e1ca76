"""A restarted gateway knows what its servers listed, and nothing that they no longer have."""

import time
from pathlib import Path

import pytest

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless
from testkit.gateway_process import HOST, GatewayProcess, free_port
from testkit.upstreams import configuration, http_server, tool, whole_command, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import (
    KNOWN,
    NOTICE_SECONDS,
    START_SECONDS,
    TOOLS,
    Errand,
    Yard,
    call,
    definitions,
    found,
    hundred,
    listed,
    met_village,
    put_back,
    states,
    text,
)

FOUND_MORE = "notifications/tools/list_changed"


# Much at once.


def test_fifty_servers_and_five_thousand_tools_are_there_before_the_first_is_connected(
    tmp_path: Path,
) -> None:
    servers = [f"office{number}" for number in range(50)]
    yard = Yard(tmp_path, servers)
    for server in servers:
        yard.offer(server, *hundred(server))
    yard.open()
    with yard.gateway() as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        everything = definitions(gateway)
    assert len(everything) == 5000
    yard.shut()

    with yard.gateway() as gateway:
        assert definitions(gateway) == everything
        for client in (Handshaker(gateway.url), Stateless(gateway.url), Stateless(gateway.url, ANSWERS_ALL)):
            assert found(client, "archive a contract at office33")[0] == "office33_archive_contract"
        assert states(gateway) == {"starting"}

        told = gateway.metrics()["headgate_list_changes"]
        yard.open()
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        assert definitions(gateway) == everything
        # They have listed what was known, so there was nothing to tell.
        assert gateway.metrics()["headgate_list_changes"] == told


def test_the_gateway_answers_while_ten_thousand_tools_are_indexed(tmp_path: Path) -> None:
    servers = [f"office{number}" for number in range(10)]
    yard = Yard(tmp_path, servers)
    for server in servers:
        yard.offer(
            server, *(one | {"name": f"{one['name']}_{n}"} for n in range(10) for one in hundred(server))
        )
    waits: list[float] = []
    with yard.gateway(yard.config(listing="search")) as gateway:
        yard.open()
        search = Errand(lambda: Stateless(gateway.url).call("retrieve_tools", {"query": "nothing yet"}))

        def indexed() -> bool:
            began = time.monotonic()
            assert gateway.get("/health").status == 200
            waits.append(time.monotonic() - began)
            return {one["state"] for one in gateway.servers().values()} == {"ready"} and not search.is_alive()

        wait_until(indexed, START_SECONDS, "everything is indexed")
        client = Stateless(gateway.url)
        (best, *_) = found(client, "archive contract 3 office7")
        assert best.startswith("office7_archive_contract")
        answer = call(client, "retrieve_tools", query="archive")["structuredContent"]
        assert answer["total_available_tools"] == 10_000
    assert max(waits) < 1.0, f"one of {len(waits)} answers of /health took {max(waits):.2f} s"


# Calls to servers that are not there yet.


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """Servers that a gateway has met."""
    return met_village(tmp_path_factory.mktemp("village"))


@pytest.fixture
def yard(village: Yard) -> Yard:
    """The servers of the village, not answering yet, and the data of a gateway that knows them."""
    return put_back(village)


@pytest.mark.parametrize("mode", ["full", "search", "dynamic"])
def test_a_call_waits_for_its_server(yard: Yard, mode: str) -> None:
    # What is new since is in no catalog.
    yard.offer("dairy", tool("churn", "Churn butter."), tool("brand-new", "Not heard of before."))
    with yard.gateway(yard.config(listing=mode)) as gateway:
        ann, eve, bob = Handshaker(gateway.url), Stateless(gateway.url), Handshaker(gateway.url, ANSWERS_ALL)
        calls = [
            Errand(lambda: call(ann, "dairy_churn")),
            Errand(lambda: call(eve, "call_tool", name="dairy:churn")),
            Errand(lambda: call(bob, "dairy_churn")),
            Errand(lambda: call(ann, "dairy_brand_new")),
            Errand(lambda: call(eve, "dairy__brand-new")),
            Errand(lambda: call(bob, "call_tool", name="dairy_brand_new")),
        ]
        wait_until(lambda: gateway.metrics()["headgate_in_flight"] == len(calls), NOTICE_SECONDS, "they wait")
        assert states(gateway) == {"starting"}
        yard.open("dairy")

        assert [text(one.result()) for one in calls] == ["dairy: churn"] * 3 + ["dairy: brand-new"] * 3
        assert gateway.servers()["bakery"]["state"] == "starting"


def test_a_name_that_no_server_can_have_is_not_waited_for(yard: Yard) -> None:
    with yard.gateway() as gateway:
        wrong = call(Handshaker(gateway.url), "brewery_brew")

        assert wrong["isError"]
        assert states(gateway) == {"starting"}


def test_what_a_server_that_is_down_has_is_listed_and_a_call_says_that_it_is_down(tmp_path: Path) -> None:
    yard, port = Yard(tmp_path, ()), free_port()
    config = configuration({"old": {"url": f"http://{HOST}:{port}/mcp"}}, listing="search")
    with (
        http_server(whole_command("legacy", "old", tmp_path / "journal"), port=port),
        yard.gateway(config) as gateway,
    ):
        gateway.wait_until_ready("old", seconds=START_SECONDS)
        before = offers(gateway)

    with yard.gateway(config) as gateway:
        assert offers(gateway) == before
        assert found(Stateless(gateway.url), "ask twice")[0] == "old_ask_twice"
        down = call(Handshaker(gateway.url), "call_tool", name="old_echo", args={"text": "hello"})

        assert down["isError"]
        assert down["_meta"]["io.headgate/error"]["code"] == "TEMPORARY_FAILURE"


def offers(gateway: GatewayProcess) -> list[Message]:
    """What there is beside tools, which no mode hides."""
    client = Handshaker(gateway.url)
    found = [
        client.ask(f"{kind}/list", {})["result"] for kind in ("prompts", "resources", "resources/templates")
    ]
    assert all(found)
    return found


# What has changed meanwhile.


def test_tools_that_vanished_or_changed_are_put_right_and_clients_are_told(yard: Yard) -> None:
    yard.offer("dairy", tool("churn", "Churn butter from cream."), tool("curdle", "Make cheese."))
    yard.offer("inn")
    expected = ["bakery_bake", "dairy_churn", "dairy_curdle", "mill_grind", "forge_shoe"]
    with yard.gateway() as gateway:
        ann = Handshaker(gateway.url)
        with ann.listening() as stream:
            assert listed(gateway) == KNOWN
            assert found(ann, "skim the cream") == ["dairy_skim"]
            yard.open("dairy", "inn")
            gateway.wait_until_ready("dairy", "inn")
            stream.until(FOUND_MORE)

            assert listed(gateway) == expected
            assert "dairy_skim" not in found(ann, "skim the cream")
            assert found(ann, "make cheese") == ["dairy_curdle"]
            assert found(ann, "lodge a traveller") == []
            assert call(ann, "dairy_skim")["isError"]
    # And it is so from now on.
    yard.shut()
    with yard.gateway() as gateway:
        assert listed(gateway) == expected
        assert found(Stateless(gateway.url), "make cheese") == ["dairy_curdle"]
        assert states(gateway) == {"starting"}


def test_what_is_only_remembered_is_no_news(yard: Yard) -> None:
    with yard.gateway() as gateway:
        assert listed(gateway) == KNOWN
        yard.open()
        gateway.wait_until_ready(*yard.names)
        assert gateway.metrics()["headgate_list_changes"] == 0


def test_a_client_that_is_shown_more_than_others_is_told_when_that_is_known(yard: Yard) -> None:
    more = yard.listing("dairy").with_suffix(".more")
    write_listing(more, [*TOOLS["dairy"], tool("taste", "Ask the model how the cheese tastes.")])
    with yard.gateway() as gateway:
        ann = Handshaker(gateway.url, ANSWERS_ALL)
        with ann.listening() as stream:
            assert names(ann) == KNOWN
            yard.open("dairy")
            stream.until(FOUND_MORE)

            assert "dairy_taste" in names(ann)
            assert "dairy_taste" not in listed(gateway)


def names(client: Handshaker) -> list[str]:
    return [one["name"] for one in client.ask("tools/list", {})["result"]["tools"]]


def test_servers_that_are_not_what_they_were_are_not_remembered(yard: Yard) -> None:
    servers = {
        # Without the bakery.
        "creamery": yard.entry("dairy"),
        "mill": yard.entry("mill", timeout=61),
        "forge": yard.entry("forge", str(yard.start_file("forge"))),
        "inn": yard.entry("inn", enabled=False),
    }
    with yard.gateway(configuration(servers)) as gateway:
        # How long it may take makes no other server of it.
        assert listed(gateway) == ["mill_grind"]
        for request in ("bake bread", "churn butter", "shoe a horse", "lodge a traveller"):
            assert found(Stateless(gateway.url), request) == []
        yard.open("dairy", "forge")
        gateway.wait_until_ready("creamery", "forge")
        assert listed(gateway) == ["creamery_churn", "creamery_skim", "mill_grind", "forge_shoe"]
        assert found(Stateless(gateway.url), "churn butter") == ["creamery_churn"]
    remembered = yard.remembered()
    assert (remembered["creamery"], remembered["mill"]) == (["churn", "skim"], ["grind"])
    # Under both of its definitions.
    assert remembered["forge"] == ["shoe", "shoe"]


def test_another_configuration_in_the_same_directory_erases_nothing(yard: Yard) -> None:
    other = {"mill": yard.entry("mill"), "forge": yard.entry("forge", str(yard.start_file("forge")))}
    with yard.gateway(configuration(other)) as gateway:
        assert listed(gateway) == ["mill_grind"]
        yard.open("forge")
        gateway.wait_until_ready("forge")
        assert listed(gateway) == ["mill_grind", "forge_shoe"]
    with yard.gateway() as gateway:
        assert listed(gateway) == KNOWN


def test_a_server_that_is_replaced_while_the_gateway_runs_is_not_remembered(yard: Yard) -> None:
    config = yard.config()
    config["mcpServers"]["dairy"] = yard.entry("dairy", str(yard.start_file("dairy")))
    del config["mcpServers"]["inn"]
    with yard.gateway() as gateway:
        assert listed(gateway) == KNOWN
        gateway.write_config(config)
        wait_until(lambda: "configuration reloaded" in gateway.log(), NOTICE_SECONDS, "the reload")
        assert "inn_lodge" not in listed(gateway)
    with yard.gateway(config) as gateway:
        assert listed(gateway) == [name for name in KNOWN if not name.startswith(("inn_", "dairy_"))]
