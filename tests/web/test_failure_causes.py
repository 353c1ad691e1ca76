"""Why a server is down: the log, `/`, `/ready` and the error of a call say the same, and keep secrets."""

import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import EXAMPLE, modern_call, scripted
from testkit.gateway_process import HOST, GatewayProcess, free_port
from testkit.waiting import wait_until
from tests.web.prometheus import parse

WAIT_SECONDS = 20.0
Start = Callable[..., GatewayProcess]
# What a user would not want to read in a log.
SECRET = "correct-horse-battery"


def python(code: str, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", code], "maxRestarts": 1, **entry}


def said(*lines: str, then: str) -> str:
    return f"import os, signal, sys\nfor line in {lines!r}: print(line, file=sys.stderr)\n{then}"


def warnings_of(gateway: GatewayProcess, server: str) -> list[str]:
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    return [line["reason"] for line in lines if line.get("server") == server and line["level"] == "warning"]


def failed_cause(gateway: GatewayProcess, server: str = "down") -> str:
    wait_until(lambda: gateway.servers()[server]["state"] == "failed", WAIT_SECONDS, f"{server} has failed")
    cause: str = gateway.servers()[server]["last_error"]
    return cause


def in_every_place(gateway: GatewayProcess, cause: str) -> None:
    """The cause is in the log once, as a warning, and word for word on the page and in a call's error."""
    assert warnings_of(gateway, "down") == [cause]
    assert cause in gateway.get("/").body.decode()
    told = modern_call(gateway, "down_anything")
    assert told["isError"] is True
    assert cause in told["content"][0]["text"]


@pytest.mark.parametrize(
    ("then", "how"),
    [
        ("sys.exit(3)", "it ended with exit code 3"),
        ("sys.exit(0)", "it ended with exit code 0"),
        ("sys.stderr.flush(); os.kill(os.getpid(), signal.SIGKILL)", "it was ended by SIGKILL"),
    ],
)
def test_how_a_process_ended_and_its_last_lines_are_told(start_gateway: Start, then: str, how: str) -> None:
    code = said("reading the settings", "error: no licence", "\x1b[31ma log is in /tmp/x\x1b[0m", then=then)
    gateway = start_gateway({"mcpServers": {"down": python(code), "example": EXAMPLE}})
    cause = failed_cause(gateway)
    assert how in cause
    assert "reading the settings | error: no licence | a log is in /tmp/x" in cause
    in_every_place(gateway, cause)


def test_a_command_that_does_not_exist_is_told(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"down": {"command": "no-such-command", "maxRestarts": 1}}})
    cause = failed_cause(gateway)
    assert "no-such-command" in cause
    in_every_place(gateway, cause)


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_the_url_is_told_without_what_may_be_secret_in_it(start_gateway: Start, kind: str) -> None:
    port = free_port()
    url = f"http://me:{SECRET}@{HOST}:{port}/s/{'k3y' * 10}/mcp?sid={SECRET}"
    gateway = start_gateway({"mcpServers": {"down": {"url": url, "type": kind, "maxRestarts": 1}}})
    cause = failed_cause(gateway)
    assert f"(http://{HOST}:{port}/s/[REDACTED]/mcp)" in cause
    in_every_place(gateway, cause)
    assert SECRET not in gateway.log()


def test_a_secret_on_stderr_is_kept_in_every_place(start_gateway: Start) -> None:
    padding = "x" * 480
    lines = (f"password={SECRET}", f"{padding} https://user:{SECRET}@db.example.com/", "no database")
    gateway = start_gateway({"mcpServers": {"down": python(said(*lines, then="sys.exit(1)"))}})
    cause = failed_cause(gateway)
    assert "no database" in cause
    in_every_place(gateway, cause)
    gateway.stop()
    assert SECRET not in gateway.log()


@pytest.mark.parametrize(
    "token",
    [
        f"sk-proj-{'a1b2' * 8}",
        f"sk-ant-api03-{'a1b2' * 8}",
        f"ghp_{'a1b2' * 9}",
        f"github_pat_{'a1b2' * 9}",
        f"glpat-{'a1b2' * 5}",
        "xoxb-123456789012-abcdefghijkl",
        "AKIAIOSFODNN7EXAMPLE",
        f"sk_live_{'a1b2' * 6}",
        f"AIza{'a1b2' * 9}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop",
    ],
)
def test_a_token_that_a_server_refuses_on_stderr_is_kept_in_every_place(
    start_gateway: Start, token: str
) -> None:
    code = said(f"Error: {token} was rejected", then="sys.exit(1)")
    gateway = start_gateway({"mcpServers": {"down": python(code)}})
    cause = failed_cause(gateway)
    assert "Error: [REDACTED] was rejected" in cause
    in_every_place(gateway, cause)
    assert token not in gateway.log()


def test_a_secret_of_the_entry_is_kept_wherever_its_server_writes_it(start_gateway: Start) -> None:
    code = said("using correct-horse-battery for prod", then="sys.exit(1)")
    entry = python(code, env={"SERVICE_TOKEN": SECRET, "STAGE": "prod"})
    gateway = start_gateway({"mcpServers": {"down": entry}})
    cause = failed_cause(gateway)
    assert "using [REDACTED] for prod" in cause
    in_every_place(gateway, cause)
    assert SECRET not in gateway.log()


def test_stderr_of_an_earlier_process_is_not_taken_for_the_cause(
    start_gateway: Start, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    code = (
        f"import os, sys\nif not os.path.exists({str(flag)!r}):\n"
        f"    open({str(flag)!r}, 'w').close(); print('first trouble', file=sys.stderr); sys.exit(4)\n"
        "sys.exit(5)"
    )
    gateway = start_gateway({"mcpServers": {"down": python(code, maxRestarts=2)}})
    cause = failed_cause(gateway)
    assert "exit code 5" in cause
    assert "first trouble" not in cause


def test_a_secret_in_the_tail_of_stderr_is_not_shown(start_gateway: Start) -> None:
    gateway = start_gateway(
        {"mcpServers": {"down": python(said(f"api_key: {SECRET}", "bye", then="sys.exit(1)"))}}
    )
    failed_cause(gateway)
    assert gateway.servers()["down"]["stderr_tail"] == ["api_key: [REDACTED]", "bye"]


KEY_LINES = [f"{line}" * 8 for line in ("MIIEow1B", "AAKCAQE2", "Qx7tZ0pL")]


@pytest.mark.parametrize("before", [0, 300])
def test_no_line_of_a_private_key_on_stderr_is_shown(start_gateway: Start, before: int) -> None:
    """Also where its first line is not kept any more."""
    key = ("-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES * (before or 1), "-----END RSA PRIVATE KEY-----")
    gateway = start_gateway(
        {"mcpServers": {"down": python(said("bad key:", *key, "bye", then="sys.exit(1)"))}}
    )
    cause = failed_cause(gateway)
    assert cause.endswith("[REDACTED] | bye")
    in_every_place(gateway, cause)
    gateway.stop()
    assert not [line for line in KEY_LINES if line in gateway.log()]


def test_no_secret_of_an_entry_is_shown_wherever_its_server_writes_it(
    start_gateway: Start, tmp_path: Path
) -> None:
    """The values of `env`, of options and of the URL, bare, encoded and in a sentence of the server's own."""
    values = ("Kx9-plain$value", 'zuW/83=wj"d', "n0t a word 42")
    lines = [f"tried {values[0]}!", f"as {json.dumps(values[1])}", f"with <{values[2]}> it failed"]
    entry = python(
        said(*lines, then="sys.exit(1)"), env={"SERVICE_TOKEN": values[0], "MY_API_KEY": values[1]}
    )
    entry["args"] += ["--password", values[2]]
    gateway = start_gateway({"mcpServers": {"down": entry}})
    cause = failed_cause(gateway)
    assert cause.count("[REDACTED]") == 3
    in_every_place(gateway, cause)
    shown = gateway.get("/ready").body.decode() + gateway.get("/").body.decode() + gateway.log()
    assert not [value for value in values if value in shown or json.dumps(value)[1:-1] in shown]


def test_a_process_that_ends_while_it_works_is_told_alike(start_gateway: Start, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    gateway = start_gateway({"mcpServers": {"own": scripted(journal), "example": EXAMPLE}})
    gateway.wait_until_ready("own")
    with ThreadPoolExecutor() as threads:
        held = threads.submit(modern_call, gateway, "own_hold")
        wait_until(
            lambda: "held" in journal.read_text(encoding="utf-8"), WAIT_SECONDS, "it works on the call"
        )
        os.kill(gateway.servers()["own"]["pid"], signal.SIGKILL)
        text = held.result()["content"][0]["text"]
    wait_until(lambda: bool(warnings_of(gateway, "own")), WAIT_SECONDS, "its end is logged")
    assert warnings_of(gateway, "own") == ["it was ended by SIGKILL"]
    assert "it was ended by SIGKILL" in text


def test_a_rejected_and_a_disabled_server_are_on_the_pages_with_the_reason(start_gateway: Start) -> None:
    servers = {
        "example": EXAMPLE,
        "both": {"command": "x", "url": "http://127.0.0.1:1/mcp"},
        "off": {**EXAMPLE, "disabled": True},
        "lacking": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${NO_SUCH_THING}"}},
    }
    gateway = start_gateway({"mcpServers": servers})
    gateway.wait_until_ready("example")
    assert gateway.get("/ready").status == 200
    told = gateway.servers()
    assert told["both"]["state"] == "rejected"
    assert "exactly one of command, url and builtin" in told["both"]["reason"]
    assert (told["off"]["state"], told["lacking"]["state"]) == ("disabled", "disabled")
    assert "its entry in the configuration says so" in told["off"]["reason"]
    assert "${NO_SUCH_THING} is not set" in told["lacking"]["reason"]
    page = gateway.get("/").body.decode()
    for name in ("both", "off", "lacking"):
        assert told[name]["reason"] in page
    states = parse(gateway.get("/metrics").body.decode())["headgate_upstream_state"]
    assert states.value("headgate_upstream_state", server="both", state="rejected") == 1


def error_of(gateway: GatewayProcess, tool: str) -> str:
    told = modern_call(gateway, tool)
    assert told["isError"] is True
    assert told["_meta"]["io.headgate/error"]["effect"] == "none"
    text: str = told["content"][0]["text"]
    return text


def test_a_call_of_a_server_that_does_not_run_names_the_reason_until_it_runs(start_gateway: Start) -> None:
    servers: dict[str, Any] = {
        "example": EXAMPLE,
        "both": {"command": "x", "url": "http://127.0.0.1:1/mcp"},
        "off": {**EXAMPLE, "disabled": True},
        "lacking": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${NO_SUCH_THING}"}},
    }
    gateway = start_gateway({"mcpServers": servers})
    gateway.wait_until_ready("example")
    for name in ("both", "off", "lacking"):
        reason = gateway.servers()[name]["reason"]
        for tool in (f"{name}_echo", f"{name}:echo", f"{name}__echo"):
            assert f"Server '{name}' does not run: {reason}" in error_of(gateway, tool)
    assert "Unknown tool: 'example_nothing'; nearest:" in error_of(gateway, "example_nothing")
    assert "Unknown server: 'elsewhere'" in error_of(gateway, "elsewhere:echo")
    edited(gateway, json.dumps({"mcpServers": servers | {"off": EXAMPLE}}))
    gateway.wait_until_ready("off")
    assert modern_call(gateway, "off_echo", {"text": "hello"})["content"]
    edited(gateway, json.dumps({"mcpServers": {"example": EXAMPLE}}))
    wait_until(lambda: "both" not in gateway.servers(), WAIT_SECONDS, "it is gone")
    assert "Unknown tool: 'both_echo'" in error_of(gateway, "both_echo")


def test_a_gateway_whose_only_server_is_rejected_has_nothing_to_wait_for(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"empty": {}}})
    assert gateway.get("/ready").status == 200
    assert gateway.servers()["empty"]["state"] == "rejected"


def edited(gateway: GatewayProcess, text: str) -> None:
    draft = gateway.config_path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(gateway.config_path)


def problem(gateway: GatewayProcess) -> str:
    return str(gateway.ready().get("configuration_error", ""))


def test_a_broken_edit_is_on_the_pages_until_it_is_mended(start_gateway: Start) -> None:
    config = {"mcpServers": {"example": EXAMPLE}}
    gateway = start_gateway(config)
    gateway.wait_until_ready("example")
    before = gateway.config_path.read_text(encoding="utf-8")
    assert "not in force" not in gateway.get("/").body.decode()
    edited(gateway, '{"mcpServers": {')
    wait_until(lambda: bool(problem(gateway)), WAIT_SECONDS, "the broken edit is told")
    page = gateway.get("/").body.decode()
    assert f"The last edit of the configuration is not in force: {problem(gateway)}" in page
    assert problem(gateway) in gateway.log()
    assert gateway.get("/ready").status == 200
    # As it was, so that there is nothing to apply.
    edited(gateway, before)
    wait_until(lambda: not problem(gateway), WAIT_SECONDS, "it is mended")
    assert "not in force" not in gateway.get("/").body.decode()


def test_a_server_whose_new_entry_is_rejected_runs_on_and_says_so(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}})
    gateway.wait_until_ready("example")
    gateway.write_config({"mcpServers": {"example": {"builtin": "example", "url": "http://127.0.0.1:1/"}}})
    wait_until(lambda: "reason" in gateway.servers()["example"], WAIT_SECONDS, "the edit is told")
    told = gateway.servers()["example"]
    assert told["state"] == "ready"
    assert "its old definition stays in force" in told["reason"]
    assert told["reason"] in gateway.get("/").body.decode()
    gateway.write_config({"mcpServers": {"example": EXAMPLE}})
    wait_until(lambda: "reason" not in gateway.servers()["example"], WAIT_SECONDS, "it is mended")


def test_an_edit_that_needs_a_restart_is_told(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}})
    gateway.wait_until_ready("example")
    gateway.write_config({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"prefix": False}})
    wait_until(lambda: "restart the gateway" in problem(gateway), WAIT_SECONDS, "the edit is told")
    assert "restart the gateway" in gateway.get("/").body.decode()


@pytest.mark.parametrize("pad", [0, 20_000])
def test_a_tool_that_fails_is_not_counted_as_ok(start_gateway: Start, tmp_path: Path, pad: int) -> None:
    """Also one whose answer is so large that it is kept on disk."""
    gateway = start_gateway(
        {"mcpServers": {"own": scripted(tmp_path / "journal")}, "proxySettings": {"spoolAboveBytes": 16_384}}
    )
    gateway.wait_until_ready("own")
    padded = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"PAD"}],%s}}'
    spelled = '"structuredContent":{"text":"{\\"isError\\":true}"}'
    for member in ('"isError":true', '"isError" : true', '"isError":false', spelled):
        modern_call(gateway, "own_say", {"line": padded % member, "pad": pad})
    metrics = gateway.metrics()
    assert metrics['headgate_calls_total{server="own",outcome="tool_error"}'] == 2
    assert metrics['headgate_calls_total{server="own",outcome="ok"}'] == 2
