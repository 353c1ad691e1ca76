"""Notifications reach the clients that see what changed, and no others."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_variant import ListingContext
from headgate.domain.client_profile import PLAIN_PROFILE, profile_of
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import ClientSession
from headgate.protocol.protocol_version import Era
from headgate.server.change_notifier import ChangeNotifier, VisibilityGroups
from testkit.clients.plain_http import Stream, opened, post, request, send, settle
from testkit.waiting import eventually
from tests.access.clients import HandshakeClient
from tests.access.conftest import configuration_of, start
from tests.access.granted import ALICE, BOB, CAROL, visible
from tests.catalog.sample_catalog import catalog_of, tool

WAIT_SECONDS = 5.0


class Listener:
    """A client that counts its notifications."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.received: list[str] = []

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        self.received.append(capability)

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        self.received.append(uri)


def listing_context(identity: Identity) -> ListingContext:
    return ListingContext(era=Era.HANDSHAKE, caller=identity)


class Clients:
    """The local user, Alice, Bob and Carol, and a catalog whose changes reach them."""

    def __init__(self) -> None:
        self.catalog: Catalog = catalog_of("bank", "files", visible=visible)
        self.notifier = ChangeNotifier(visible)
        self.listeners = [Listener(identity) for identity in (LOCAL_IDENTITY, ALICE, BOB, CAROL)]
        for listener in self.listeners:
            self.notifier.add_listener(listener)
        self.catalog.on_change(self._on_change)

    def _on_change(self, kind: ItemKind) -> None:
        self.notifier.list_changed(kind.capability, None, self.catalog.take_change(kind).is_seen_by)

    async def received(self) -> dict[str, list[str]]:
        """What each has received once the local user, who sees everything, has."""
        await eventually(lambda: bool(self.listeners[0].received), WAIT_SECONDS, "notified")
        found = {one.identity.principal: list(one.received) for one in self.listeners}
        for listener in self.listeners:
            listener.received.clear()
        return found


async def test_a_changed_list_is_told_to_those_who_see_the_change() -> None:
    clients = Clients()
    clients.catalog.listing(ItemKind.TOOLS, listing_context(LOCAL_IDENTITY))
    clients.catalog.replace_listing("files", ItemKind.TOOLS, [tool("read")])
    told = {"local": ["tools"], "bob": ["tools"], "carol": ["tools"], "alice": []}
    assert await clients.received() == told
    clients.catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay")])
    told = {"local": ["tools"], "alice": ["tools"], "carol": ["tools"], "bob": []}
    assert await clients.received() == told


async def test_a_list_that_changes_for_one_profile_is_told_to_those_who_see_its_server() -> None:
    clients = Clients()
    for server in ("bank", "files"):
        clients.catalog.replace_listing(server, ItemKind.TOOLS, [tool("a"), tool("b")])
    sampling = profile_of(b'{"sampling":{}}')
    asked = ListingContext(era=Era.HANDSHAKE, caller=BOB, profile=sampling)
    clients.catalog.listing(ItemKind.TOOLS, asked)
    await clients.received()
    # The tools of all profiles together stay the same.
    clients.catalog.replace_listing("files", ItemKind.TOOLS, [tool("a")], sampling)
    told = {"local": ["tools"], "bob": ["tools"], "carol": ["tools"], "alice": []}
    assert await clients.received() == told


@pytest.mark.parametrize(
    "kind", [ItemKind.PROMPTS, ItemKind.RESOURCES, ItemKind.TEMPLATES], ids=lambda kind: kind.value
)
async def test_prompts_and_resources_change_for_those_who_see_them(kind: ItemKind) -> None:
    clients = Clients()
    clients.catalog.listing(kind, listing_context(LOCAL_IDENTITY))
    definition = {"name": "x", "uri": "files:///x", "uriTemplate": "files:///{x}"}
    clients.catalog.replace_listing("files", kind, [json.dumps(definition).encode()])
    received = await clients.received()
    assert received["bob"] == received["carol"] == [kind.capability]
    assert received["alice"] == []


async def test_two_changes_of_one_moment_are_told_to_both_who_see_one() -> None:
    clients = Clients()
    clients.catalog.listing(ItemKind.TOOLS, listing_context(LOCAL_IDENTITY))
    for server in ("bank", "files"):
        clients.catalog.replace_listing(server, ItemKind.TOOLS, [tool("a")])
    assert set(map(tuple, (await clients.received()).values())) == {("tools",)}


async def test_a_changed_resource_is_told_to_those_who_see_it() -> None:
    clients = Clients()
    uri = "shared:///x"
    resource = Item(ItemKind.RESOURCES, "files", uri, uri)
    clients.notifier.resource_updated(uri, b"{}", None, lambda visibility: visibility.allows(resource))
    assert await clients.received() == {"local": [uri], "alice": [], "bob": [uri], "carol": [uri]}


def test_the_same_uri_is_routed_to_the_server_that_the_caller_sees() -> None:
    catalog = catalog_of("bank", "files", prefixed=True, visible=visible)
    definition = json.dumps({"name": "x", "uri": "shared:///x"}).encode()
    for server in ("bank", "files"):
        catalog.replace_listing(server, ItemKind.RESOURCES, [definition])
        catalog.replace_listing(server, ItemKind.TEMPLATES, [])
    assert catalog.resolve_resource("shared:///x", ALICE).server == "bank"
    assert catalog.resolve_resource("shared:///x", BOB).server == "files"


def test_visibility_is_filtered_once_for_each_version_of_the_catalog() -> None:
    catalog = catalog_of("bank", "files", visible=visible)
    for server in ("bank", "files"):
        catalog.replace_listing(server, ItemKind.TOOLS, [tool("a")])
    seen = catalog.visible(PLAIN_PROFILE, visible(ALICE))
    assert [item.server for item in seen] == ["bank"]
    assert catalog.visible(PLAIN_PROFILE, visible(ALICE)) is seen
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("a"), tool("b")])
    assert len(catalog.visible(PLAIN_PROFILE, visible(ALICE))) == 2


LISTS = {f"notifications/{capability}/list_changed" for capability in ("tools", "prompts", "resources")}


def test_a_server_that_vanishes_is_told_to_those_who_saw_it(tmp_path: Path) -> None:
    config = configuration_of(tmp_path)
    with start(tmp_path) as gateway:
        settle(gateway, "bank", "files")
        alice, bob = (HandshakeClient(gateway, who) for who in ("alice", "bob"))
        with listening_as(alice) as to_alice, listening_as(bob) as to_bob:
            for removed, stream in (("files", to_bob), ("bank", to_alice)):
                del config["mcpServers"][removed]
                gateway.write_config(config)
                assert {stream.message()["method"] for _ in LISTS} == LISTS
            for client, stream in ((alice, to_alice), (bob, to_bob)):
                assert send(gateway, "DELETE", "/mcp", client.headers).status == 200
                # Nothing came besides.
                with pytest.raises(EOFError):
                    stream.message()


@pytest.mark.parametrize("method", ["notifications/tasks/status", "notifications/message"])
def test_what_may_be_about_the_call_of_another_is_told_to_nobody(tmp_path: Path, method: str) -> None:
    secret = "the task of Alice is done"

    def answer_of(client: HandshakeClient) -> str:
        told = {"method": method, "params": {"data": secret}, "count": 1}
        params = {"name": "bank_tell_flood", "arguments": told}
        return post(client.gateway, request("tools/call", params), client.headers).body.decode()

    with start(tmp_path) as gateway:
        settle(gateway, "bank", "files")
        alice, carol = (HandshakeClient(gateway, who) for who in ("alice", "carol"))
        # Only Alice has used the connection so far.
        assert secret in answer_of(alice)
        assert secret not in answer_of(carol)
        assert secret not in answer_of(alice)


def listening_as(client: HandshakeClient) -> AbstractContextManager[Stream]:
    return opened(client.gateway, "GET", "/mcp", {**client.headers, "Accept": "text/event-stream"})
