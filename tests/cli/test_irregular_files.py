"""A pipe, a socket, a directory or a device in place of a file does not hold up a start."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.gateway_process import HOST, TRACEBACK
from testkit.waiting import wait_until

# A start takes well under a second; one that waits for a writer never ends.
BOUND_SECONDS = 20.0
EXAMPLE = {"builtin": "example"}
BY_WORDS = {"HEADGATE_KNOWLEDGE_EMBEDDER": "BM25"}
KINDS = ("a named pipe", "a directory", "a socket", "a device")


def put(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "a named pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case "a socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(path))
        case "a device":
            # It never ends, like a pipe, and never refuses.
            path.symlink_to("/dev/zero")


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


def run(home: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headgate", *arguments],
        cwd=home,
        env=environment(home, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )


def ingested(home: Path) -> None:
    (home / "documents").mkdir(exist_ok=True)
    (home / "documents" / "one.md").write_text("# One\n\nA short document.\n")
    ended = run(home, "knowledge", "ingest", "documents", "--data-dir", "data", **BY_WORDS)
    assert ended.returncode == 0, ended.stderr


def refused(home: Path, *arguments: str, **more: str) -> str:
    """The one sentence of a command that must end with exit code 2."""
    ended = run(home, *arguments, **more)
    assert ended.returncode == 2, ended.stderr
    assert TRACEBACK not in ended.stderr
    sentences = [line for line in ended.stderr.splitlines() if line.startswith("headgate: ")]
    assert len(sentences) == 1, ended.stderr
    return sentences[0]


Starts = Callable[..., "Started"]


class Started:
    """A gateway that serves, and what it logs."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log() or self.process.poll() is not None, BOUND_SECONDS, text)
        assert text in self.log()
        assert self.process.poll() is None, self.log()

    def end(self) -> None:
        """A thread that waits for a writer would keep the process from ending."""
        self.process.terminate()
        assert self.process.wait(BOUND_SECONDS) == 0, self.log()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    running: list[Started] = []

    def start(entry: dict[str, Any], *more: str, **variables: str) -> Started:
        config = tmp_path / "headgate.json"
        config.write_text(json.dumps({"mcpServers": {"one": entry}}))
        log = tmp_path / "log"
        command = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "http"]
        command += ["--host", HOST, "--port", "0", "--data-dir", str(tmp_path / "data"), *more]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment(tmp_path, **variables),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        running.append(Started(process, log))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.wait(BOUND_SECONDS)
        assert TRACEBACK not in one.log()


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_file(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "other.json", kind)
    sentence = refused(tmp_path, "serve", "--config", "other.json")
    assert "other.json cannot be read: " in sentence
    assert kind in sentence or kind == "a socket"


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "headgate.json").write_text(json.dumps({"mcpServers": {"one": EXAMPLE}}))
    put(tmp_path / "gateway.log", kind)
    if kind == "a device":
        # As in containers: /dev/stderr and /dev/null take lines.
        return
    sentence = refused(tmp_path, "serve", HEADGATE_LOG_FILE=str(tmp_path / "gateway.log"))
    assert "gateway.log cannot be written: " in sentence


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "seal.key",
        "state.json",
        "ledger.db",
        "ledger.mark",
        "ledger.damaged",
        "proxy.db",
        "spool",
        "state.new",
    ],
)
def test_a_file_of_the_data_directory(tmp_path: Path, starts: Starts, name: str, kind: str) -> None:
    """The gateway serves without it and says so, or ends with one sentence; it never waits."""
    if (name, kind) == ("spool", "a directory"):
        return
    put(tmp_path / "data" / name, kind)
    gateway = starts(EXAMPLE)

    def told() -> list[str]:
        # The spool and the new state are first used by a call.
        marks = ('"listening"',) if name in ("spool", "state.new") else (name, "ledger not read")
        return [line for line in gateway.log().splitlines() if any(mark in line for mark in marks)]

    wait_until(lambda: bool(told()) or gateway.process.poll() is not None, BOUND_SECONDS, "a start or an end")
    if gateway.process.poll() is None:
        gateway.wait_for('"listening"')
    else:
        assert gateway.process.returncode == 2
        assert len([line for line in gateway.log().splitlines() if line.startswith("headgate: ")]) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a directory"])
@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.mark", "ledger.damaged"])
def test_a_ledger_that_is_to_be_recovered(tmp_path: Path, name: str, kind: str) -> None:
    put(tmp_path / "data" / name, kind)
    if name != "ledger.db":
        (tmp_path / "data" / "ledger.db").write_bytes(b"no database" * 1_000)
    sentence = refused(tmp_path, "operations", "recover", "--accept-loss", "--data-dir", "data")
    assert "ledger.db cannot be recovered: " in sentence


@pytest.mark.parametrize("kind", KINDS)
def test_the_variables_beside_the_configuration(tmp_path: Path, starts: Starts, kind: str) -> None:
    put(tmp_path / ".env", kind)
    gateway = starts(EXAMPLE)
    gateway.wait_for('"listening"')
    assert ".env is not used: " in gateway.log()


@pytest.mark.parametrize("kind", KINDS)
def test_the_variables_of_a_server(tmp_path: Path, starts: Starts, kind: str) -> None:
    put(tmp_path / "own.env", kind)
    gateway = starts({"command": sys.executable, "args": ["-c", "input()"], "envFile": "own.env"})
    gateway.wait_for('"listening"')
    assert "own.env is not used: " in gateway.log()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a directory"])
def test_the_certificates_of_a_server(tmp_path: Path, starts: Starts, kind: str) -> None:
    put(tmp_path / "ca.pem", kind)
    gateway = starts({"url": "https://127.0.0.1:9/mcp", "caFile": str(tmp_path / "ca.pem"), "maxRestarts": 1})
    gateway.wait_for('"listening"')
    gateway.wait_for("ca.pem cannot be used (")


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificates_of_the_system(tmp_path: Path, starts: Starts, kind: str) -> None:
    put(tmp_path / "all.pem", kind)
    entry = {"url": "https://127.0.0.1:9/mcp", "maxRestarts": 1, "connectTimeout": BOUND_SECONDS * 2}
    gateway = starts(entry, SSL_CERT_FILE=str(tmp_path / "all.pem"))
    gateway.wait_for('"listening"')
    gateway.wait_for(
        f"SSL_CERT_FILE {tmp_path / 'all.pem'} cannot be used (it is {kind}, not a regular file)"
    )
    gateway.end()


@pytest.mark.parametrize("variable", ["SSL_CERT_DIR", "caFile"])
def test_a_certificate_in_a_directory(tmp_path: Path, starts: Starts, variable: str) -> None:
    """OpenSSL reads it only when a server shows a certificate of that name, in the middle of a handshake."""
    put(tmp_path / "authorities" / "0123abcd.0", "a named pipe")
    entry = {"url": "https://127.0.0.1:9/mcp", "maxRestarts": 1}
    directory = {variable: str(tmp_path / "authorities")}
    gateway = starts(entry | directory) if variable == "caFile" else starts(entry, **directory)
    gateway.wait_for('"listening"')
    gateway.wait_for("0123abcd.0 cannot be used (it is a named pipe, not a regular file)")
    gateway.end()


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificates_for_an_embedder(tmp_path: Path, starts: Starts, kind: str) -> None:
    put(tmp_path / "all.pem", kind)
    gateway = starts(
        EXAMPLE,
        HEADGATE_EMBEDDER="OPENAI",
        HEADGATE_LISTING="search",
        OPENAI_BASE_URL="https://127.0.0.1:9/v1",
        SSL_CERT_FILE=str(tmp_path / "all.pem"),
    )
    gateway.wait_for('"listening"')
    gateway.wait_for(
        f"SSL_CERT_FILE {tmp_path / 'all.pem'} cannot be used (it is {kind}, not a regular file)"
    )
    gateway.end()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["knowledge.db", "knowledge.db-wal", "knowledge.db-journal"])
def test_the_store_of_documents(tmp_path: Path, name: str, kind: str) -> None:
    ingested(tmp_path)
    (tmp_path / "data" / name).unlink(missing_ok=True)
    put(tmp_path / "data" / name, kind)
    sentence = refused(tmp_path, "knowledge", "stats", "--data-dir", "data", **BY_WORDS)
    assert "the store of the documents cannot be used" in sentence


def test_the_gateway_serves_without_its_store_of_documents(tmp_path: Path, starts: Starts) -> None:
    put(tmp_path / "data" / "knowledge.db", "a named pipe")
    gateway = starts({"builtin": "knowledge"}, **BY_WORDS)
    gateway.wait_for('"listening"')
    gateway.wait_for("knowledge store cannot be used")
    gateway.end()


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_could_not_be_read_before(tmp_path: Path, kind: str) -> None:
    ingested(tmp_path)
    put(tmp_path / "data" / "knowledge-failed.json", kind)
    ingested(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "graph.jsonl", kind)
    sentence = refused(tmp_path, "knowledge", "ingest", "--graph", "graph.jsonl", **BY_WORDS)
    assert "graph.jsonl" in sentence
    assert kind in sentence or kind == "a socket"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tools.jsonl", "queries.jsonl"])
def test_the_files_of_an_evaluation(tmp_path: Path, name: str, kind: str) -> None:
    tool = {"id": "a/one", "server": "a", "name": "one", "description": "Adds numbers."}
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "tools.jsonl").write_text(json.dumps(tool))
    (tmp_path / "set" / "queries.jsonl").write_text(json.dumps({"query": "add", "gold_groups": [["a/one"]]}))
    (tmp_path / "set" / name).unlink()
    put(tmp_path / "set" / name, kind)
    sentence = refused(tmp_path, "eval", "set", HEADGATE_EMBEDDER="BM25")
    assert f"{name} cannot be read: " in sentence


def test_the_log_may_go_to_a_device_that_takes_lines(starts: Starts) -> None:
    gateway = starts(EXAMPLE, HEADGATE_LOG_FILE="/dev/null")
    gateway.wait_for('"listening"')
