"""A small file of facts worth remembering: who owns a contested name, which era a server speaks."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

log = logging.getLogger("headgate.storage")


class Facts(msgspec.Struct):
    """The content of the file."""

    names: dict[str, tuple[str, str]] = {}
    versions: dict[str, str] = {}


class StateFile:
    """The facts, written whole and atomically when one changes; a lost or broken file only costs a probe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._facts = _read(path)

    def owner(self, public_name: str) -> tuple[str, str] | None:
        """The server and tool that had the name first."""
        return self._facts.names.get(public_name)

    def claim(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Remember the first owner of each name."""
        if not names.items() <= self._facts.names.items():
            self._facts.names.update(names)
            self._write()

    def version(self, server: str) -> str | None:
        """The protocol version that was agreed with this server the last time."""
        return self._facts.versions.get(server)

    def remember_version(self, server: str, version: str) -> None:
        """Remember what was agreed."""
        if self._facts.versions.get(server) != version:
            self._facts.versions[server] = version
            self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(self._facts))
            os.replace(fresh, self._path)
        except OSError as error:
            log.warning("state not written", extra={"path": str(self._path), "reason": str(error)})


def _read(path: Path) -> Facts:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Facts)
    except FileNotFoundError:
        return Facts()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("state not read", extra={"path": str(path), "reason": str(error)})
        return Facts()
