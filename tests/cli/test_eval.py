"""`headgate eval`: a labelled set or the operator's own tools, as text and as JSON."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testkit.gateway_process import clean_environment, free_port, running_gateway
from testkit.parts import Parts
from testkit.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "data" / "retrieval" / "mcpproxy_golden_v1"
# Servers of Node start slowly on a busy machine.
SECONDS = 60.0
WORDS = {"HEADGATE_EMBEDDER": "BM25"}
EXAMPLE = {"example": {"builtin": "example"}}
ASKED = "queries.jsonl"


def command(*arguments: str | Path, directory: Path) -> list[str]:
    data = ["--data-dir", str(directory / "data")]
    return [sys.executable, "-m", "headgate", "eval", *map(str, arguments), *data]


def environment(directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    return clean_environment() | {"HOME": str(directory), "COLUMNS": "100"} | WORDS | dict(settings)


def run(*arguments: str | Path, directory: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments, directory=directory),
        cwd=directory,
        env=environment(directory, settings),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def report(*arguments: str | Path, directory: Path, **settings: str) -> dict[str, Any]:
    """Return the JSON document."""
    ended = run(*arguments, "--json", directory=directory, **settings)
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def refused(*arguments: str | Path, directory: Path, **settings: str) -> str:
    """Return the one sentence that says why there is no report."""
    ended = run(*arguments, directory=directory, **settings)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("headgate: ")]
    assert len(said) == 1, ended.stderr
    assert said == ended.stderr.splitlines()[-1:]
    return said[0]


def configured(directory: Path, servers: Mapping[str, Any]) -> Path:
    path = directory / "headgate.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def labelled(directory: Path, tools: str, questions: str) -> Path:
    found = directory / "set"
    found.mkdir()
    (found / "tools.jsonl").write_text(tools, encoding="utf-8")
    (found / "queries.jsonl").write_text(questions, encoding="utf-8")
    return found


def test_help_is_given_and_loads_no_gateway(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "headgate", "eval", "--help"],
        env=environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    for word in ("SET_DIR", "--config", "--data-dir", "--json", "--limit", "--refresh"):
        assert word in ended.stdout
    assert "headgate.cli" in ended.stderr
    assert "headgate.app" not in ended.stderr


# A labelled set.


def test_a_set_is_asked_by_words_and_nothing_is_kept(tmp_path: Path) -> None:
    found = report(GOLDEN, directory=tmp_path)
    assert list(found) == [
        "kind",
        "version",
        "set",
        "model",
        "tools",
        "metrics",
        "unanswered",
        "without_model",
        "time",
        "left_out",
        "misses",
    ]
    assert (found["kind"], found["set"], found["model"]) == ("set", "mcpproxy_golden_v1", None)
    assert (found["tools"], found["metrics"]["questions"], found["left_out"]) == (45, 47, 0)
    assert found["metrics"]["recall_at_5"] >= 0.74
    assert found["metrics"]["recall_at_1"] <= found["metrics"]["recall_at_5"] <= 1
    assert 0 < found["time"]["p50_ms"] <= found["time"]["p99_ms"]
    assert found["unanswered"] <= 3
    assert set(found["misses"][0]) == {"request", "wanted", "missing", "found"}
    assert not (tmp_path / "data").exists()


def test_a_set_is_answered_the_same_in_every_process(tmp_path: Path) -> None:
    first, second = (report(GOLDEN, directory=tmp_path, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second | {"time": first["time"]}


def test_a_set_is_told_as_text_that_fits_the_terminal(tmp_path: Path) -> None:
    wide = run(GOLDEN, directory=tmp_path)
    assert wide.returncode == 0, wide.stderr
    for words in (
        "47 labelled requests over 45 tools",
        "words alone",
        "R@1",
        "R@5",
        "NDCG@10",
        "p99",
        "of 47",
    ):
        assert words in wide.stdout
    assert wide.stderr == ""
    narrow = run(GOLDEN, directory=tmp_path, COLUMNS="70")
    assert max(map(len, narrow.stdout.splitlines())) <= 70 < max(map(len, wide.stdout.splitlines()))


def test_the_rows_of_a_set_can_be_limited(tmp_path: Path) -> None:
    assert len(report(GOLDEN, "--limit", "2", directory=tmp_path)["misses"]) == 2
    assert "(2 of " in run(GOLDEN, "--limit", "2", directory=tmp_path).stdout


def test_a_set_is_asked_by_meaning_and_its_vectors_are_made_once(tmp_path: Path) -> None:
    words = report(GOLDEN, directory=tmp_path)
    first = report(GOLDEN, directory=tmp_path, HEADGATE_EMBEDDER="SEMANTIC")
    kept = vectors(tmp_path)
    second = report(GOLDEN, directory=tmp_path, HEADGATE_EMBEDDER="SEMANTIC")
    assert "MiniLM" in first["model"]
    assert first["metrics"] == second["metrics"]
    assert first["metrics"]["recall_at_5"] > words["metrics"]["recall_at_5"]
    assert first["without_model"] == 0
    assert len(kept) == 45
    assert vectors(tmp_path) == kept


def vectors(directory: Path) -> list[tuple[str, bytes]]:
    connection = sqlite3.connect(directory / "data" / "proxy.db")
    try:
        return list(connection.execute("SELECT hash, vector FROM vectors ORDER BY hash"))
    finally:
        connection.close()


def test_an_embedder_that_is_away_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    said = refused(GOLDEN, directory=tmp_path, HEADGATE_EMBEDDER="OPENAI", HEADGATE_OPENAI_BASE_URL=url)
    assert "HEADGATE_EMBEDDER=BM25" in said


@pytest.mark.parametrize(
    ("tools", "questions", "words"),
    [
        ("", '{"query":"q","gold":["a"]}', ["tools.jsonl", "no tool"]),
        ('{"id":"a","name":"n"}\nnonsense\n', "", ["line 2 of tools.jsonl", "not JSON"]),
        ('{"id":"a","name":"n"}\n', '{"query":"q","gold":["b"]}', ["line 1 of queries.jsonl", "'b'"]),
        ('{"id":"a","name":"n"}\n', "\n", ["queries.jsonl", "no question"]),
        ('{"id":"a"}\n', "\n", ["line 1 of tools.jsonl", "`name`"]),
    ],
)
def test_what_is_wrong_with_a_set_is_said_in_one_sentence(
    tmp_path: Path, tools: str, questions: str, words: list[str]
) -> None:
    said = refused(labelled(tmp_path, tools, questions), directory=tmp_path)
    for word in words:
        assert word in said


def test_a_directory_or_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "nowhere" in refused("nowhere", directory=tmp_path)
    found = labelled(tmp_path, '{"id":"a","name":"n"}', "")
    (found / ASKED).unlink()
    assert ASKED in refused(found, directory=tmp_path)
    (found / ASKED).mkdir()
    assert ASKED in refused(found, directory=tmp_path)


def test_a_set_may_be_where_one_is_and_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    found = labelled(
        tmp_path, '\ufeff{"id":"a","name":"read"}\r\n', '\ufeff{"query":"read","gold":["a"]}\r\n'
    )
    ended = subprocess.run(
        command(".", "--json", directory=tmp_path),
        cwd=found,
        env=environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    told = json.loads(ended.stdout)
    assert (told["set"], told["tools"], told["metrics"]["recall_at_1"]) == ("set", 1, 1)


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path, limit: str) -> None:
    ended = run(GOLDEN, "--limit", limit, directory=tmp_path)
    assert ended.returncode == 2
    assert "--limit" in ended.stderr


# The operator's own tools.


def test_the_tools_of_real_servers_are_checked(tmp_path: Path, parts: Parts) -> None:
    servers = EXAMPLE | {
        "clock": {"command": str(parts.server_bin("mcp-server-time"))},
        "git": {"command": str(parts.server_bin("mcp-server-git"))},
        "notes": {"command": str(parts.node), "args": [str(parts.npm_bin("mcp-server-memory"))]},
        "broken": {"command": "/nonexistent/command"},
        "off": {"command": "/nonexistent/command", "enabled": False},
    }
    config = configured(tmp_path, servers)
    found = report("--config", config, directory=tmp_path)
    assert list(found) == [
        "kind",
        "version",
        "model",
        "tools",
        "metrics",
        "unanswered",
        "without_model",
        "time",
        "servers",
        "unreached",
        "confusions",
        "weaknesses",
    ]
    assert found["kind"] == "catalog"
    by_name = {one["name"]: one for one in found["servers"]}
    assert set(by_name) == {"example", "clock", "git", "notes"}
    assert by_name["clock"]["tools"] == 2
    assert found["tools"] == sum(one["tools"] for one in found["servers"])
    assert found["metrics"]["questions"] == sum(one["requests"] for one in found["servers"]) > found["tools"]
    assert found["metrics"]["recall_at_5"] > 0.8
    (broken,) = found["unreached"]
    assert (broken["name"], "/nonexistent/command" in broken["reason"]) == ("broken", True)
    for confusion in found["confusions"]:
        assert confusion["wanted"] != confusion["found"]
        assert confusion["wanted"]["server"] in by_name
    for weak in found["weaknesses"]:
        assert weak["advice"]
        assert weak["requests"] - weak["found"] == len(weak["missed"])
    text = run("--config", config, directory=tmp_path)
    assert text.returncode == 0, text.stderr
    # What could not be reached is tried again; the others are remembered.
    assert "connecting to broken\n" in text.stderr
    for words in ("Not checked: 'broken'", "Servers", "clock", "Confused"):
        assert words in text.stdout


def traced(parts: Parts, trace: Path) -> dict[str, Any]:
    """Return a server that leaves a line in a file each time it is started."""
    script = f'echo started >> "{trace}"; exec "{parts.server_bin("mcp-server-time")}"'
    return {"command": "/bin/sh", "args": ["-c", script]}


def test_servers_that_are_known_are_not_started_again_unless_asked_for(tmp_path: Path, parts: Parts) -> None:
    trace = tmp_path / "trace"
    config = configured(tmp_path, {"clock": traced(parts, trace)})
    first = report("--config", config, directory=tmp_path)
    again = report("--config", config, directory=tmp_path, MCPPROXY_RESET_DATA="true")
    assert again["metrics"] == first["metrics"]
    assert trace.read_text() == "started\n"
    report("--config", config, "--refresh", directory=tmp_path)
    assert trace.read_text() == "started\n" * 2


def test_a_server_that_is_away_now_is_checked_as_it_was(tmp_path: Path, parts: Parts) -> None:
    script = tmp_path / "clock"
    script.write_text(f'#!/bin/sh\nexec "{parts.server_bin("mcp-server-time")}"\n', encoding="utf-8")
    script.chmod(0o755)
    config = configured(tmp_path, {"clock": {"command": str(script)}})
    assert report("--config", config, directory=tmp_path)["tools"] == 2
    script.unlink()
    ended = run("--config", config, "--refresh", directory=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "2 tools of 1 server" in ended.stdout
    assert "Not checked" not in ended.stdout
    assert "what it listed before is taken" in ended.stderr


def test_what_a_gateway_remembers_is_checked_without_connecting(tmp_path: Path, parts: Parts) -> None:
    trace = tmp_path / "trace"
    servers = EXAMPLE | {"clock": traced(parts, trace)}
    with running_gateway({"mcpServers": servers}, tmp_path, environment=WORDS) as gateway:
        gateway.wait_until_ready()
        while_it_runs = run("--config", gateway.config_path, directory=tmp_path)
    assert while_it_runs.returncode == 0, while_it_runs.stderr
    after = run("--config", configured(tmp_path, servers), directory=tmp_path)
    assert after.stderr == ""
    assert "8 tools of 2 servers" in after.stdout
    assert trace.read_text() == "started\n"


def test_the_own_tools_are_checked_by_meaning(tmp_path: Path) -> None:
    config = configured(tmp_path, EXAMPLE)
    found = report("--config", config, directory=tmp_path, HEADGATE_EMBEDDER="SEMANTIC")
    assert "MiniLM" in found["model"]
    assert len(vectors(tmp_path)) == found["tools"]


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({}, ["no enabled server"]),
        ({"off": {"builtin": "example", "enabled": False}}, ["no enabled server"]),
        ({"broken": {"command": "/nonexistent/command"}}, ["no tool", "'broken'", "/nonexistent/command"]),
    ],
)
def test_without_a_tool_there_is_nothing_to_check(
    tmp_path: Path, servers: dict[str, Any], words: list[str]
) -> None:
    said = refused("--config", configured(tmp_path, servers), directory=tmp_path)
    for word in words:
        assert word in said


def test_without_a_configuration_there_is_nothing_to_check(tmp_path: Path) -> None:
    assert "no enabled server" in refused(directory=tmp_path)
    assert "nowhere.json" in refused("--config", "nowhere.json", directory=tmp_path)


def test_whoever_waits_for_a_server_can_go_away(tmp_path: Path) -> None:
    config = configured(tmp_path, {"silent": {"command": "sleep", "args": ["60"]}})
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command("--config", config, directory=tmp_path),
            stdout=output,
            stderr=output,
            env=environment(tmp_path, {}),
            cwd=tmp_path,
        )
    try:
        wait_until(lambda: b"connecting to silent" in log.read_bytes(), SECONDS, "it connects")
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS / 2) == 130
    finally:
        child.kill()
        child.wait()
    assert b"Traceback" not in log.read_bytes()
