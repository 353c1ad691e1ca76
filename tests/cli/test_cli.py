"""The command line: what it says, how it ends, and that an error is one sentence with the fix."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate import __version__
from testkit.gateway_process import HOST, clean_environment
from testkit.waiting import wait_until

SECONDS = 20.0
EXAMPLE = {"mcpServers": {"example": {"builtin": "example"}}}


def run(
    *arguments: str, cwd: Path | None = None, python: Sequence[str] = (), **environment: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *python, "-m", "headgate", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment() | {"HOME": str(cwd or "/nonexistent")} | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration that works."""
    path = tmp_path / "headgate.json"
    path.write_text(json.dumps(EXAMPLE), encoding="utf-8")
    return path


def refused(*arguments: str, cwd: Path) -> str:
    """Return the one sentence that says why the gateway does not start."""
    ended = run("serve", *arguments, "--data-dir", str(cwd / "data"), cwd=cwd)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("headgate: ")
    return lines[0]


def test_the_version_is_told() -> None:
    ended = run("--version")
    assert ended.returncode == 0
    assert __version__ in ended.stdout
    assert ended.stderr == ""


def test_the_command_is_installed_under_its_name() -> None:
    command = Path(sys.executable).with_name("headgate")
    ended = subprocess.run(
        [command, "--version"], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert __version__ in ended.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["serve", "--help"], ["serve", "-h"]])
def test_help_is_given(arguments: list[str]) -> None:
    ended = run(*arguments)
    assert ended.returncode == 0
    assert "Usage:" in ended.stdout
    wanted = ["--config", "--transport", "--host", "--port", "--data-dir", "--listing"]
    for word in wanted if "serve" in arguments else ["serve", "--version"]:
        assert word in ended.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "x"]])
def test_a_command_that_nobody_knows_is_refused_with_a_hint(arguments: list[str]) -> None:
    ended = run(*arguments)
    assert ended.returncode == 2
    assert "Error:" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["serve", "--help"]])
def test_what_needs_no_gateway_loads_none(arguments: list[str]) -> None:
    ended = run(*arguments, python=["-X", "importtime"])
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if "import time" in line}
    assert "headgate.cli" in loaded
    for module in (
        "uvicorn",
        "ssl",
        "uvloop",
        "httptools",
        "headgate.app",
        "headgate.upstream",
        "http.client",
    ):
        assert module not in loaded, f"{module} costs time and is not used"


def test_a_file_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    said = refused("--config", "nowhere.json", cwd=tmp_path)
    assert "nowhere.json" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["headgate.json"]),
        ('{"mcpServers": {"a": {"command": "x"}}', ["headgate.json", "line 1"]),
        ("[]", ["headgate.json"]),
        ('{"mcpServers": 5}', ["mcpServers"]),
        ('{"proxySettings": {"port": 99999}}', ["port"]),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "headgate.json").write_text(text, encoding="utf-8")
    said = refused("--config", "headgate.json", cwd=tmp_path)
    for word in words:
        assert word in said


def test_a_port_that_is_taken_is_named_with_the_way_out(config: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = refused("--config", str(config), "--transport", "http", "--port", port, cwd=tmp_path)
    assert port in said
    assert "--port" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_an_address_that_others_could_reach_is_refused(config: Path, tmp_path: Path, host: str) -> None:
    said = refused("--config", str(config), "--transport", "http", "--host", host, cwd=tmp_path)
    assert host in said
    assert "loopback" in said


@pytest.mark.parametrize(
    ("option", "value"), [("--transport", "carrier-pigeon"), ("--port", "70000"), ("--listing", "thin")]
)
def test_a_flag_that_makes_no_sense_is_named(config: Path, tmp_path: Path, option: str, value: str) -> None:
    said = refused("--config", str(config), option, value, cwd=tmp_path)
    assert value in said


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["listing"],
        ["eval"],
        ["operations", "list"],
        ["operations", "show", "x"],
        ["operations", "resolve", "x", "--happened"],
        ["transactions", "list"],
        ["transactions", "show", "x"],
        ["transactions", "resolve", "x", "--leave"],
        ["knowledge", "stats"],
    ],
    ids=" ".join,
)
def test_verbose_adds_the_traceback_and_changes_nothing_else(tmp_path: Path, command: list[str]) -> None:
    plain = run(*command, "--config", "nowhere.json", cwd=tmp_path)
    ended = run(*command, "--config", "nowhere.json", "-v", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout) == (2, "")
    assert ended.stderr.startswith("Traceback")
    assert "ConfigError" in ended.stderr
    assert ended.stderr.endswith(plain.stderr)


@pytest.mark.parametrize("place", ["directory", "file/below.log"])
@pytest.mark.parametrize("more", [[], ["-v"]])
def test_a_log_file_that_cannot_be_written_is_told_in_one_sentence(
    config: Path, tmp_path: Path, place: str, more: list[str]
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    log = str(tmp_path / place)
    ended = run("serve", "--config", str(config), *more, cwd=tmp_path, MCPPROXY_LOG_FILE=log)
    assert (ended.returncode, ended.stdout) == (2, "")
    *before, last = ended.stderr.splitlines()
    assert last.startswith(f"headgate: the log file {log} cannot be written: ")
    assert "HEADGATE_LOG_FILE" in last
    assert bool(before) is bool(more)


def test_what_the_system_refuses_at_the_start_is_one_sentence(config: Path, tmp_path: Path) -> None:
    """Here a directory stands where a file is to be removed."""
    (tmp_path / "data" / "state.json").mkdir(parents=True)
    arguments = ["serve", "--config", str(config), "--data-dir", str(tmp_path / "data")]
    ended = run(*arguments, cwd=tmp_path, HEADGATE_RESET_DATA="true")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"headgate: {tmp_path / 'data' / 'state.json'}: Is a directory; ")


def test_a_working_directory_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    code = f"import os; os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    command = [sys.executable, "-c", f"{code}; from headgate.cli.commands import cli; cli(['serve'])"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("headgate: ")
    assert len(ended.stderr.splitlines()) == 1


def test_a_variable_that_is_overridden_is_told(config: Path, tmp_path: Path) -> None:
    arguments = ["serve", "--config", str(config), "--transport", "stdio"]
    ended = run(*arguments, cwd=tmp_path, MCPPROXY_TRANSPORT="http", MCPPROXY_LOG_FORMAT="json")
    assert ended.returncode == 0
    events = [json.loads(line)["event"] for line in ended.stderr.splitlines()]
    assert "MCPPROXY_TRANSPORT has no effect: --transport overrides it with another value" in events


def test_a_data_directory_that_cannot_be_written_does_not_keep_the_gateway_from_running(
    config: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    arguments = ["serve", "--config", str(config), "--transport", "stdio"]
    ended = run(*arguments, "--data-dir", str(tmp_path / "file" / "data"), cwd=tmp_path)
    assert ended.returncode in (0, 2)
    assert "Traceback" not in ended.stderr


def test_a_gateway_whose_input_is_closed_from_the_start_ends_at_once(config: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    ended = run("serve", "--config", str(config), "--data-dir", str(tmp_path / "data"), cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout == ""
    assert time.monotonic() - started < SECONDS / 2


@pytest.mark.parametrize(("sign", "codes"), [(signal.SIGTERM, {0}), (signal.SIGINT, {0, 130})])
def test_a_signal_ends_the_gateway_without_a_word_too_many(
    config: Path, tmp_path: Path, sign: signal.Signals, codes: set[int]
) -> None:
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "http"]
    command += ["--port", "0", "--data-dir", str(tmp_path / "data")]
    log = tmp_path / "log"
    with log.open("wb") as output:
        gateway = subprocess.Popen(
            command, stdout=output, stderr=output, env=clean_environment(), cwd=tmp_path
        )
    try:
        wait_until(lambda: b"listening" in log.read_bytes(), SECONDS, "it listens")
        os.kill(gateway.pid, sign)
        assert gateway.wait(SECONDS) in codes
    finally:
        gateway.kill()
        gateway.wait()
    assert b"Traceback" not in log.read_bytes()
