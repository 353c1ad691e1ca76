"""Guards the yardstick: the bare forwarder may not change, or years could not be compared."""

import hashlib
from pathlib import Path
from typing import Final

FORWARDER: Final = Path(__file__).with_name("forwarder.py")
SEAL: Final = Path(__file__).with_name("forwarder.sha256")


class ForwarderChanged(Exception):
    """The source of the bare forwarder is not the one that was frozen."""


def check(forwarder: Path = FORWARDER, seal: Path = SEAL) -> str:
    """The digest of the forwarder. Raises ForwarderChanged when it is not the sealed one."""
    digest = hashlib.sha256(forwarder.read_bytes()).hexdigest()
    if digest != seal.read_text().split()[0]:
        raise ForwarderChanged(
            f"{forwarder.name} differs from {seal.name}: it is the yardstick of the benchmarks, put it back"
        )
    return digest
