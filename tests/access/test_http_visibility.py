"""Over HTTP, what an identity may not see is neither listed, counted, hinted, found nor called."""

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from testkit.clients.plain_http import post, settle
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.waiting import wait_until
from tests.access.clients import ERAS, HandshakeClient, StatelessClient
from tests.access.conftest import configuration_of, start

EITHER_ERA = pytest.mark.parametrize("client", ERAS.values(), ids=ERAS)
AnyClient = type[HandshakeClient] | type[StatelessClient]
LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


def listed(client: HandshakeClient | StatelessClient, method: str) -> set[str]:
    member, key = LISTS[method]
    return {item[key] for item in client.ask(method)["result"][member]}


def call(client: HandshakeClient | StatelessClient, name: str, /, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.ask("tools/call", {"name": name, "arguments": arguments})["result"]
    return result


@EITHER_ERA
@pytest.mark.parametrize("method", LISTS)
def test_lists_show_what_is_granted_and_nothing_else(
    gateway: GatewayProcess, client: AnyClient, method: str
) -> None:
    everything, bank, files = (listed(client(gateway, who), method) for who in ("carol", "alice", "bob"))
    assert everything == bank | files == listed(client(gateway), method)
    assert bank
    assert files
    assert all("bank" in name for name in bank)
    assert all("files" in name for name in files)


@EITHER_ERA
@pytest.mark.parametrize("mode", ListingMode)
def test_no_listing_mode_names_a_hidden_server(
    gateway: GatewayProcess, client: AnyClient, mode: ListingMode
) -> None:
    shown = json.dumps(client(gateway, "alice", f"/mcp/{mode}").ask("tools/list"))
    assert "files" not in shown
    assert "note" not in shown
    assert "bank" not in json.dumps(client(gateway, "bob", f"/mcp/{mode}").ask("tools/list"))


@EITHER_ERA
def test_the_greeting_speaks_of_visible_servers_alone(gateway: GatewayProcess, client: AnyClient) -> None:
    alice, bob = (json.dumps(client(gateway, who).greeting) for who in ("alice", "bob"))
    assert "Advice of the bank" in alice
    assert "archive" not in alice
    assert "Advice of the archive" in bob
    assert "bank" not in bob
    assert "# files" in json.dumps(client(gateway, "carol").greeting)


@EITHER_ERA
@pytest.mark.parametrize("spelling", ["{}_read_note", "{}:read_note", "{}__read_note"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_hidden_tool_is_not_found_like_one_that_never_existed(
    gateway: GatewayProcess, client: AnyClient, spelling: str, *, wrapped: bool
) -> None:
    def refusal(server: str) -> str:
        name = spelling.format(server)
        alice = client(gateway, "alice", "/mcp/search" if wrapped else "/mcp")
        result = call(alice, "call_tool", name=name, args={}) if wrapped else call(alice, name)
        assert result["isError"]
        return json.dumps(result).replace(server, "SERVER")

    hidden = refusal("files")
    assert "NOT_FOUND" in hidden
    assert hidden == refusal("filly")


@EITHER_ERA
def test_hints_name_visible_tools_alone(gateway: GatewayProcess, client: AnyClient) -> None:
    assert "files_read_note" in json.dumps(call(client(gateway, "bob"), "files_read_not"))
    assert "files_read_note" not in json.dumps(call(client(gateway, "alice"), "files_read_not"))


@EITHER_ERA
def test_search_neither_finds_nor_counts_what_is_hidden(gateway: GatewayProcess, client: AnyClient) -> None:
    query = "read the text of a note from the archive"
    found = {
        who: call(
            client(gateway, who, "/mcp/search"), "retrieve_tools", query=query, limit=50, detail="explain"
        )
        for who in ("alice", "bob", "carol")
    }
    assert "files_read_note" in json.dumps(found["bob"])
    assert "files" not in json.dumps(found["alice"])
    counts = {who: one["structuredContent"]["total_available_tools"] for who, one in found.items()}
    assert counts["bob"] == 1
    assert counts["carol"] == counts["alice"] + counts["bob"]


@EITHER_ERA
def test_a_search_in_a_hidden_server_is_one_in_no_server(gateway: GatewayProcess, client: AnyClient) -> None:
    def refusal(server: str) -> str:
        alice = client(gateway, "alice", "/mcp/search")
        return json.dumps(call(alice, "retrieve_tools", query="note", servers=[server])).replace(server, "S")

    assert refusal("files") == refusal("nowhere")
    assert "files" not in refusal("nowhere")


@EITHER_ERA
def test_the_schema_of_a_hidden_tool_does_not_exist(gateway: GatewayProcess, client: AnyClient) -> None:
    def expand(who: str, name: str) -> str:
        params = {"name": "expandSchema", "arguments": {"toolName": name}}
        return json.dumps(client(gateway, who, "/mcp/slim").ask("tools/call", params))

    assert "note" in expand("bob", "files_read_note")
    hidden = expand("alice", "files_read_note")
    assert hidden.replace("files", "S") == expand("alice", "filly_read_note").replace("filly", "S")
    assert "files" not in expand("alice", "retrieve_tools")


REFUSED: dict[str, dict[str, Any]] = {
    "prompts/get": {"name": "SERVER_summarise", "arguments": {}},
    "resources/read": {"uri": "SERVER:///note"},
    "a template": {"uri": "SERVER:///notes/7"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "SERVER_summarise"},
        "argument": {"name": "x", "value": ""},
    },
    "completion of a template": {
        "ref": {"type": "ref/resource", "uri": "SERVER:///notes/{id}"},
        "argument": {"name": "id", "value": ""},
    },
}
METHODS = {"a template": "resources/read", "completion of a template": "completion/complete"}


@EITHER_ERA
@pytest.mark.parametrize("what", REFUSED)
def test_hidden_prompts_and_resources_do_not_exist(
    gateway: GatewayProcess, client: AnyClient, what: str
) -> None:
    def answer(who: str, server: str) -> dict[str, Any]:
        params = json.loads(json.dumps(REFUSED[what]).replace("SERVER", server))
        return client(gateway, who).ask(METHODS.get(what, what), params)

    assert "result" in answer("bob", "files")
    hidden = answer("alice", "files")
    # An unlisted URI is read at the only server that the caller sees.
    assert "error" in hidden or "bank" in json.dumps(hidden)
    assert json.dumps(hidden).replace("files", "S") == json.dumps(answer("alice", "filly")).replace(
        "filly", "S"
    )


def test_a_hidden_resource_cannot_be_subscribed_to(gateway: GatewayProcess) -> None:
    alice = HandshakeClient(gateway, "alice")
    assert "result" in HandshakeClient(gateway, "bob").ask("resources/subscribe", {"uri": "files:///note"})
    hidden = alice.ask("resources/subscribe", {"uri": "files:///note"})
    unknown = alice.ask("resources/subscribe", {"uri": "filly:///note"})
    assert json.dumps(hidden).replace("files", "S") == json.dumps(unknown).replace("filly", "S")


@EITHER_ERA
def test_a_method_cannot_be_forwarded_to_a_hidden_server(gateway: GatewayProcess, client: AnyClient) -> None:
    def answer(who: str, server: str) -> str:
        params = {"_meta": {"io.headgate/server": server}}
        return json.dumps(client(gateway, who).ask("vendor/dig", params)).replace(server, "S")

    assert answer("alice", "files") == answer("alice", "filly")
    assert answer("alice", "files") != answer("bob", "files")


def test_a_hidden_server_gets_no_connection_and_no_message_of_a_client(tmp_path: Path) -> None:
    with start(tmp_path) as gateway:
        settle(gateway, "bank", "files")
        alice = HandshakeClient(gateway, "alice", roots={"listChanged": True}, elicitation={})
        assert "bank_pay_invoice" in json.dumps(alice.ask("tools/list"))
        changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        assert post(gateway, changed, alice.headers).status == 202
        assert alice.ask("logging/setLevel", {"level": "debug"})["result"] == {}
        bank = tmp_path / "bank.record"
        wait_until(lambda: "told notifications/roots/list_changed" in bank.read_text(), 5.0, "told")
        hidden = (tmp_path / "files.record").read_text()
        assert "roots" not in hidden
        assert "elicitation" not in hidden


def test_a_hidden_tool_of_a_starting_server_undoes_no_step(tmp_path: Path) -> None:
    config = configuration_of(tmp_path)
    started, bank = tmp_path / "started", config["mcpServers"].pop("bank")
    # Its tools are not known when the step comes.
    late = ["-c", f'touch {started}; sleep 2; exec "$@"', "sh", bank["command"], *bank["args"]]
    with running_gateway(config, tmp_path, program="tests.access.granted_gateway") as gateway:
        settle(gateway, "files")
        dave = HandshakeClient(gateway, "dave")
        begun = call(dave, "transaction_begin")["structuredContent"]["transaction_id"]
        config["mcpServers"]["bank"] = {**bank, "command": "sh", "args": late}
        gateway.write_config(config)
        wait_until(started.exists, 5.0, "started")
        step = {"transaction_id": begun, "tool": "files_read_note", "args": {}}
        refused = call(dave, "transaction_step", **step, compensate={"tool": "bank_pay_invoice", "args": {}})
        settle(gateway, "bank", "files")
        call(dave, "transaction_rollback", transaction_id=begun)
        assert "call pay_invoice" not in (tmp_path / "bank.record").read_text()
        assert "TOOL_NOT_FOUND" in json.dumps(refused)
