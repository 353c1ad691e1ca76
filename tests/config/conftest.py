"""The one fixture of these tests."""

from pathlib import Path

import pytest

from tests.config.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a place without any configuration."""
    return Place(tmp_path)
