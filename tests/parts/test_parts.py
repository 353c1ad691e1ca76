"""The real servers and clients: there when a test needs them, and installed for no other test."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.gateway_process import HOST
from testkit.parts import ROOT, Parts

SECONDS = 50.0
INSTALLS = ("npm ci", ".parts/pypi-servers", ".parts/sdk1")


def test_every_part_is_there(parts: Parts) -> None:
    assert parts.server_bin("mcp-server-time").exists()
    assert parts.sdk1_python.exists()
    assert parts.node_modules.is_dir()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone in which nothing is installed yet, with as much as make looks at."""
    shutil.copytree(ROOT / "tests" / "parts", tmp_path / "tests" / "parts", ignore=_installed)
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _installed(_directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("node_modules", "__pycache__")]


def make(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    own = ("MAKE", "MFLAGS", "GNUMAKEFLAGS")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return subprocess.run(
        ["make", *arguments],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_make_pytest_installs_no_part_before_the_tests_are_chosen(clone: Path) -> None:
    ended = make("--dry-run", "pytest", "ARGS=tests/console", cwd=clone)
    assert ended.returncode == 0, ended.stderr
    assert "-m pytest" in ended.stdout
    assert not [sign for sign in INSTALLS if sign in ended.stdout]


def test_make_test_installs_every_part(clone: Path) -> None:
    ended = make("--dry-run", "test", cwd=clone)
    assert ended.returncode == 0, ended.stderr
    assert [sign for sign in INSTALLS if sign in ended.stdout] == list(INSTALLS)


@pytest.mark.parametrize(
    ("chosen", "calls"),
    [("tests/parts/test_parts.py::test_every_part_is_there", ["parts"]), ("tests/domain/test_item.py", [])],
)
def test_parts_are_installed_where_a_chosen_test_needs_them(
    tmp_path: Path, chosen: str, calls: list[str]
) -> None:
    """A program named make takes down what it is asked for."""
    (tmp_path / "make").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n', encoding="utf-8")
    (tmp_path / "make").chmod(0o755)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", chosen]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"INSTALL_PARTS": "1", "PATH": path}
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    called = (tmp_path / "calls").read_text(encoding="utf-8").split() if calls else []
    assert (tmp_path / "calls").exists() is bool(calls)
    assert set(called) == set(calls)


def test_make_run_leaves_the_data_of_the_user_alone(clone: Path) -> None:
    ended = make("--dry-run", "run", cwd=clone)
    assert ended.returncode == 0, ended.stderr
    assert "--data-dir .headgate " in ended.stdout
    ignored = subprocess.run(["git", "check-ignore", ".headgate/proxy.db"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_make_run_names_the_way_out_when_the_port_is_taken(taken_port: int) -> None:
    bin_directory = Path(sys.executable).parent
    ended = make("--old-file=.venv/run.stamp", "run", f"BIN={bin_directory}", f"PORT={taken_port}", cwd=ROOT)
    assert ended.returncode == 2
    assert f"Port {taken_port} is taken" in ended.stderr
    assert f"`make run PORT={taken_port + 1}`" in ended.stderr
    assert "headgate serve" not in ended.stdout


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port with a listener."""
    with socket.create_server((HOST, 0)) as listener:
        yield int(listener.getsockname()[1])
