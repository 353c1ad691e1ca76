"""Host names are resolved without holding up anything else."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from headgate.upstream.http.http_connector import (
    MOST_LOOKUPS,
    ConnectFailed,
    HostResolver,
    Origin,
    OriginConnector,
)

WAIT_SECONDS = 10.0


class NameServer:
    """Knows every name but `unknown`; those that begin with `slow` only once it is let go."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.asked: Counter[str] = Counter()

    def __call__(self, host: str) -> list[str]:
        self.asked[host] += 1
        if host.startswith("slow"):
            self.answering.wait(WAIT_SECONDS)
        if host == "unknown":
            raise OSError(-3, "Temporary failure in name resolution")
        return ["127.0.0.1"]


@pytest.fixture
def names() -> Iterator[NameServer]:
    """Return a name server whose last answers are given at the end."""
    names = NameServer()
    yield names
    names.answering.set()


async def test_names_that_hang_leave_threads_for_other_names_and_other_work(names: NameServer) -> None:
    resolver = HostResolver(names)
    hanging = [asyncio.create_task(resolver.resolve(f"slow{number}")) for number in range(40)]
    async with asyncio.timeout(WAIT_SECONDS / 2):
        assert await resolver.resolve("fast") == ["127.0.0.1"]
        await asyncio.to_thread(int)
    assert not any(task.done() for task in hanging)
    names.answering.set()
    assert await asyncio.gather(*hanging) == [["127.0.0.1"]] * 40


async def test_a_name_is_looked_up_once_for_all_that_wait_also_when_some_give_up(names: NameServer) -> None:
    resolver = HostResolver(names)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await resolver.resolve("slow")
    waiting = asyncio.create_task(resolver.resolve("slow"))
    await asyncio.sleep(0)
    names.answering.set()
    assert await waiting == ["127.0.0.1"]
    assert names.asked["slow"] == 1


async def test_lookups_that_hang_are_bounded(names: NameServer) -> None:
    resolver = HostResolver(names)
    hanging = [asyncio.create_task(resolver.resolve(f"slow{number}")) for number in range(MOST_LOOKUPS)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="check the name server"):
        await resolver.resolve("fast")
    names.answering.set()
    await asyncio.gather(*hanging)
    assert await resolver.resolve("fast") == ["127.0.0.1"]


async def test_a_name_that_cannot_be_resolved_is_named(names: NameServer) -> None:
    connector = OriginConnector(Origin("http://unknown:1/"), 5.0, resolver=HostResolver(names))
    cause = r"the host name unknown could not be resolved \(Temporary failure in name resolution\)"
    with pytest.raises(ConnectFailed, match=cause):
        await connector.connect(asyncio.Protocol)


async def test_a_connection_waits_for_its_name_no_longer_than_its_timeout(names: NameServer) -> None:
    connector = OriginConnector(Origin("http://slow:1/"), 0.05, resolver=HostResolver(names))
    with pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"):
        await connector.connect(asyncio.Protocol)


async def test_addresses_are_not_looked_up(names: NameServer) -> None:
    resolver = HostResolver(names)
    assert [await resolver.resolve(host) for host in ("127.0.0.1", "::1")] == [["127.0.0.1"], ["::1"]]
    assert not names.asked


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connector = OriginConnector(
        Origin(f"http://two:{port}/"), 5.0, resolver=HostResolver(lambda _: ["127.0.0.9", "127.0.0.1"])
    )
    protocol = await connector.connect(Connected)
    assert protocol.peer == "127.0.0.1"
    server.close()
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.9.*127\.0\.0\.1"):
        await connector.connect(Connected)


class Connected(asyncio.Protocol):
    """Notes where it is connected to."""

    peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = transport.get_extra_info("peername")[0]
        transport.close()


async def test_a_name_is_resolved_again_after_no_thread_could_be_started(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver = HostResolver(names)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="no thread"):
            await resolver.resolve("fast")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await resolver.resolve("fast") == ["127.0.0.1"]
