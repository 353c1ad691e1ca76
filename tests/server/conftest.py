"""One gateway for most of these tests: nothing that one client does may be noticed by another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.clients.plain_http import EXAMPLE, scripted, settle
from testkit.gateway_process import GatewayProcess, running_gateway


@pytest.fixture(scope="package")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the scripted server records what it received."""
    path = tmp_path_factory.mktemp("journal") / "journal"
    path.touch()
    return path


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory, journal: Path) -> Iterator[GatewayProcess]:
    """Return a gateway before the built-in example and the scripted server."""
    config = {
        "mcpServers": {"example": EXAMPLE, "own": scripted(journal)},
        # Results of every size cross the front.
        "proxySettings": {"enableAutoTruncation": False},
    }
    with running_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway:
        settle(gateway)
        yield gateway


@pytest.fixture(autouse=True)
def everybody_else_is_served(gateway: GatewayProcess) -> Iterator[None]:
    """Look, after each test, whether the gateway still answers others."""
    yield
    assert gateway.get("/health").status == 200
