"""A home, a working directory and secrets of a test's own, so that nothing of the machine is read."""

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.config.loader import load
from headgate.config.settings import Flags, Settings
from headgate.domain.errors import ConfigError
from headgate.domain.server_spec import ServerSpec


class ConfigSandbox:
    """Writes configurations and loads them as the command line does."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.cwd = root / "work"
        self.secrets = root / "secrets"
        for directory in (self.home, self.cwd, self.secrets):
            directory.mkdir()

    def write(self, document: object, name: str = "headgate.json") -> Path:
        """Write a configuration into the working directory; text and bytes go as they are."""
        path = self.cwd / name
        if not isinstance(document, str | bytes):
            document = json.dumps(document)
        path.write_bytes(document.encode() if isinstance(document, str) else document)
        return path

    def load(self, flags: Flags | None = None, /, **environ: str) -> Settings:
        """Load what was written, with these variables alone."""
        return load(flags or Flags(), {"HOME": str(self.home)} | environ, self.cwd, secrets=self.secrets)

    def load_settings(self, **settings: Any) -> Settings:
        """Load a file with one server and these proxySettings."""
        self.write({"mcpServers": {"one": {"builtin": "example"}}, "proxySettings": settings})
        return self.load()

    def load_server(self, entry: object, **environ: str) -> tuple[ServerSpec | None, tuple[str, ...]]:
        """Load a file with one entry beside a good one; what became of it, and the warnings."""
        self.write({"mcpServers": {"it": entry, "other": {"builtin": "example"}}})
        settings = self.load(**environ)
        *it, other = settings.servers
        assert other.name == "other"
        assert other.enabled
        return (it[0] if it else None), settings.warnings

    def refusal(self, flags: Flags | None = None, /, **environ: str) -> str:
        """Load what cannot be used; the sentence and the hint that the operator reads."""
        with pytest.raises(ConfigError) as caught:
            self.load(flags, **environ)
        return f"{caught.value.message}; {caught.value.hint}"
