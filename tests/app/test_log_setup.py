"""One line per event: JSON for machines, one readable line for people."""

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.app.log_setup import JsonLogFormatter, PrettyLogFormatter
from testkit.clients.plain_http import EXAMPLE, Session, modern_call, scripted
from testkit.gateway_process import GatewayProcess

Start = Callable[..., GatewayProcess]


def record(message: str, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("headgate.test")
    return logger.makeRecord("headgate.test", logging.WARNING, "f.py", 1, message, (), None, extra=extra)


def test_every_line_of_a_running_gateway_is_json(start_gateway: Start, tmp_path: Path) -> None:
    servers = {
        "example": EXAMPLE,
        "own": scripted(tmp_path / "journal"),
        "dead": {"command": "nothing-at-all"},
    }
    config = {"mcpServers": servers, "proxySettings": {"nonsense": 1}}
    gateway = start_gateway(config, environment={"MCP_PROXY_LOG_LEVEL": "DEBUG"})
    gateway.wait_until_ready("example", "own")
    modern_call(gateway, "own_say", {"line": '{"jsonrpc":"2.0","id":ID}'})
    Session(gateway).call("no\nsuch\ntool\x1b[31m")
    gateway.stop()
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert lines
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert line["level"] in ("debug", "info", "warning", "error")
        assert line["event"]
    (listening,) = [line for line in lines if line["event"] == "listening"]
    assert listening["url"] == gateway.url
    assert {"own", "example"} <= {line.get("server") for line in lines if line["event"] == "upstream ready"}


def test_lines_also_go_to_a_file(start_gateway: Start, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "gateway.log"
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}}, environment={"MCPPROXY_LOG_FILE": str(log)})
    gateway.stop()
    events = [json.loads(line)["event"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert "listening" in events


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2Jcleared", "\r\0\x07", 'quo"te', "\udcff", "é世"])
def test_no_text_breaks_out_of_its_line(text: str) -> None:
    told = json.loads(JsonLogFormatter().format(record("event", reason=text)))
    assert told["event"] == "event"
    line = PrettyLogFormatter().format(record(f"event {text}", reason=text))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise ValueError("no\nway")
    except ValueError as error:
        failed = record("event")
        failed.exc_info = (type(error), error, error.__traceback__)
    line = JsonLogFormatter().format(failed)
    assert "\n" not in line
    assert "ValueError: no\nway" in json.loads(line)["traceback"]


def test_values_of_any_kind_are_told() -> None:
    told = json.loads(
        JsonLogFormatter().format(record("event", path=Path("/x"), numbers=[1, 2.5], nothing=None))
    )
    assert told["path"] == "/x"
    assert told["numbers"] == [1, 2.5]
    assert "nothing" not in told


@pytest.mark.parametrize("style", [JsonLogFormatter(), PrettyLogFormatter()])
def test_the_log_keeps_everything_but_the_secrets(style: logging.Formatter) -> None:
    line = style.format(record("failed with password=abc1", reason="Authorization: Bearer abc2 in /home/ann"))
    assert "abc1" not in line
    assert "abc2" not in line
    assert "/home/ann" in line
    try:
        raise ValueError("https://ann:abc3@host")
    except ValueError:
        caught = record("bug")
        caught.exc_info = sys.exc_info()
    text = style.format(caught)
    assert "ValueError" in text
    assert "abc3" not in text


def test_a_long_text_is_cut_before_secrets_are_looked_for() -> None:
    text = "password=" * 1_000_000
    for line in (
        JsonLogFormatter().format(record("event", reason=text)),
        PrettyLogFormatter().format(record(f"event {text}")),
    ):
        assert len(line) < 100_000
        assert "… (9,00" in line
