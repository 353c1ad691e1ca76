"""The bare forwarder stays as it was frozen, and the locks of the peers name no registry."""

import json
from pathlib import Path

import pytest

from bench.frozen import FORWARDER, SEAL, ForwarderChanged, check

PEERS = Path(__file__).resolve().parents[1] / "peers"


def test_the_bare_forwarder_is_the_one_that_was_frozen() -> None:
    assert check() == SEAL.read_text().split()[0]


def test_a_forwarder_that_was_touched_is_refused(tmp_path: Path) -> None:
    slowed = tmp_path / "forwarder.py"
    slowed.write_bytes(FORWARDER.read_bytes() + b"\n")
    with pytest.raises(ForwarderChanged, match="put it back"):
        check(slowed)


@pytest.mark.parametrize("lock", ["fastmcp.lock", "mcp-proxy.lock"])
def test_python_locks_hold_hashes_and_no_address(lock: str) -> None:
    text = (PEERS / lock).read_text()
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")


def test_the_npm_lock_holds_hashes_and_no_address() -> None:
    packages = json.loads((PEERS / "npm" / "package-lock.json").read_text())["packages"]
    installed = {name: entry for name, entry in packages.items() if name}
    assert all("integrity" in entry and "resolved" not in entry for entry in installed.values())
