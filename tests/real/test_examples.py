"""Each configuration in examples/ is started with real servers, and its tools can be called."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testkit.clients.plain_http import last_message, modern, modern_call
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import ROOT, Parts
from testkit.upstreams import announcing, era_server, lines_of, server_command

EXAMPLES = ROOT / "examples"
START_SECONDS = 60.0


@pytest.fixture
def launchers(parts: Parts, tmp_path: Path) -> Path:
    """Return a directory with an npx and a uvx that run the servers which are installed already."""
    directory = tmp_path / "bin"
    directory.mkdir()
    servers = {
        "@modelcontextprotocol/server-filesystem": "mcp-server-filesystem",
        "@modelcontextprotocol/server-memory": "mcp-server-memory",
    }
    cases = [
        f'{name}) exec {shlex.quote(str(parts.node))} {shlex.quote(str(parts.npm_bin(command)))} "$@" ;;'
        for name, command in servers.items()
    ]
    write_script(directory / "npx", ["shift", 'name="$1"', "shift", 'case "$name" in', *cases, "esac"])
    commands = shlex.quote(str(parts.server_python.parent))
    write_script(directory / "uvx", ['name="$1"', "shift", f'exec {commands}/"$name" "$@"'])
    return directory


def write_script(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


@contextmanager
def started(name: str, directory: Path, **variables: str) -> Iterator[GatewayProcess]:
    """Run an example as it is, with a home of its own."""
    config = json.loads((EXAMPLES / name).read_text())
    # The result tools stay as the example lists them; port and transport are those of the test.
    config["proxySettings"] = {"listResultTools": True} | config.get("proxySettings", {})
    home = directory / "home"
    home.mkdir()
    environment = {"HOME": str(home), **variables}
    with running_gateway(
        config, directory / "gateway", environment=environment, start_seconds=START_SECONDS
    ) as gateway:
        yield gateway


def listed(gateway: GatewayProcess) -> set[str]:
    return {tool["name"] for tool in last_message(modern(gateway, "tools/list"))["result"]["tools"]}


def with_launchers(directory: Path) -> str:
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def test_every_example_is_in_the_readme_and_in_this_module() -> None:
    page, tests = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    for file in EXAMPLES.glob("*.json"):
        assert f"[{file.name}]({file.name})" in page
        assert file.name == "headgate.json" or f'started("{file.name}"' in tests


def test_personal(launchers: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "todo.txt").write_text("water the plants")
    variables = {"PATH": with_launchers(launchers), "NOTES_DIR": str(notes)}
    with started("personal.json", tmp_path, **variables) as gateway:
        gateway.wait_until_ready("files", "memory", seconds=START_SECONDS)
        text = modern_call(gateway, "files_read_text_file", {"path": str(notes / "todo.txt")})
        assert "water the plants" in text["content"][0]["text"]
        # It is cold: the call starts it.
        assert (
            "datetime"
            in modern_call(gateway, "time_get_current_time", {"timezone": "UTC"})["content"][0]["text"]
        )
        assert "time_get_current_time" in listed(gateway)


def test_team(launchers: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        tickets = stack.enter_context(era_server("legacy", tmp_path / "tickets"))
        wiki = stack.enter_context(era_server("modern", tmp_path / "wiki"))
        variables = {
            "PATH": with_launchers(launchers),
            "TICKETS_URL": tickets,
            "TICKETS_TOKEN": "secret",
            "WIKI_URL": wiki,
        }
        gateway = stack.enter_context(started("team.json", tmp_path, **variables))
        gateway.wait_until_ready(seconds=START_SECONDS)
        assert modern_call(gateway, "tickets_echo", {"text": "hello"})["content"][0]["text"] == "hello"
        assert modern_call(gateway, "wiki_echo", {"text": "hello"})["content"][0]["text"] == "hello"
        hidden = modern_call(gateway, "repository_git_reset", {"repo_path": str(tmp_path)})
        assert "git_reset" in hidden["content"][0]["text"]
        assert hidden["isError"]


def test_ci(launchers: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run(["git", "init", "--quiet", work], check=True)
    variables = {"PATH": with_launchers(launchers), "WORKSPACE": str(work), "RUNNER_TEMP": str(tmp_path)}
    with started("ci.json", tmp_path, **variables) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        names = listed(gateway)
        assert {"repository_git_status", "files_read_text_file"} <= names
        assert not {"repository_git_commit", "files_write_file"} & names


def test_documents(tmp_path: Path) -> None:
    with started("documents.json", tmp_path) as gateway:
        gateway.wait_until_ready("knowledge")
        assert any(name.startswith("knowledge_") for name in listed(gateway))


def test_payments(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with announcing(server_command("servers.payments", journal, "json")) as port, ExitStack() as stack:
        variables = {"PAYMENTS_URL": f"http://127.0.0.1:{port}/mcp", "PAYMENTS_TOKEN": "secret"}
        gateway = stack.enter_context(started("payments.json", tmp_path, **variables))
        gateway.wait_until_ready("payments")
        once = {"io.headgate/idempotencyKey": "order-17"}
        arguments = {"name": "payments_pay", "arguments": {"name": "order-17"}, "_meta": once}
        for _ in range(3):
            modern(gateway, "tools/call", arguments)
        assert lines_of(journal) == ["order-17"]
