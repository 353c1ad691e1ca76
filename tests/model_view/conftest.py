"""One gateway for all conversations of a module."""

from collections.abc import Iterator

import pytest

from testkit.parts import Parts
from tests.model_view.gateway import Site, running_site


@pytest.fixture(scope="module")
def site(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway before real servers."""
    with running_site(parts, tmp_path_factory.mktemp("site")) as site:
        yield site
