"""The one fixture of these tests."""

from pathlib import Path

import pytest

from tests.config.sandbox import ConfigSandbox


@pytest.fixture
def sandbox(tmp_path: Path) -> ConfigSandbox:
    """Return a place without any configuration."""
    return ConfigSandbox(tmp_path)
