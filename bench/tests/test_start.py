"""A start is measured in a fresh process, and nothing of the harness is counted with it."""

import sys
from pathlib import Path

import pytest

from bench.process import StartFailed
from bench.start import import_in_a_fresh_process, serve

_PYTHON = Path(sys.executable)


def test_an_import_costs_more_than_none() -> None:
    nothing = import_in_a_fresh_process(_PYTHON, "", "our environment")
    # The official SDK, which brings many packages along.
    much = import_in_a_fresh_process(_PYTHON, "mcp", "our environment")
    assert 0 < nothing.cpu_ms < much.cpu_ms
    assert 1_000_000 < nothing.peak_bytes < much.peak_bytes


def test_the_memory_of_the_harness_is_not_counted() -> None:
    ballast = bytearray(b"x") * 200_000_000
    line = import_in_a_fresh_process(_PYTHON, "", "our environment")
    assert line.peak_bytes < len(ballast) // 2


def test_an_import_that_fails_is_not_a_figure() -> None:
    with pytest.raises(StartFailed, match="no_such_module"):
        import_in_a_fresh_process(_PYTHON, "no_such_module", "our environment")


def test_the_gateway_is_measured_until_it_is_ready() -> None:
    line = serve()
    assert line.idle_bytes is not None
    assert line.health_seconds is not None
    assert 1_000_000 < line.idle_bytes <= line.peak_bytes
    assert 0 < line.health_seconds < 60
    assert line.cpu_ms > 0
