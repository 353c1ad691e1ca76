"""Fixtures that many tests share: real parts, free ports, running gateways."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.parts import Parts, install

# Speed is measured in bench; here a busy machine must not fail a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let children be interrupted: a shell starts what it runs in the background with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the real parts if a chosen test needs them and `make pytest` asks for it."""
    if not os.environ.get("INSTALL_PARTS") or session.config.option.collectonly:
        return
    # Here and not in the fixture: a test has a minute, and npm may need more.
    if any("parts" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            install()
        except subprocess.CalledProcessError as error:
            pytest.exit(f"the real parts could not be installed: {error}; run `make parts`", returncode=2)


@pytest.fixture(scope="session")
def parts() -> Parts:
    """Return the paths of the real servers and clients."""
    return Parts()


@pytest.fixture(name="free_port")
def free_port_fixture() -> int:
    """Return a port without a listener."""
    return free_port()


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """Return a function with the arguments of `running_gateway`; what it starts stops with the test."""
    with ExitStack() as gateways:
        started = 0

        def start(config: dict[str, Any], **settings: Any) -> GatewayProcess:
            nonlocal started
            started += 1
            directory = tmp_path / f"gateway-{started}"
            return gateways.enter_context(running_gateway(config, directory, **settings))

        yield start


@pytest.fixture(autouse=True)
def no_blocking_calls_on_the_loop() -> Iterator[None]:
    """Make a blocking call of Headgate on a running loop an error."""
    guard = BlockBuster("headgate")
    # `make coverage`: the tracer's own lock, held for microseconds.
    guard.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", "lock_data")
    guard.activate()
    yield
    guard.deactivate()
