"""The numbers of the gateway, in the format that Prometheus reads."""

import re
from collections.abc import Iterator

import pytest

from headgate.domain.server_spec import ServerState
from testkit.clients.plain_http import EXAMPLE, Session, modern, modern_call, scripted
from testkit.gateway_process import GatewayProcess, running_gateway
from tests.web.prometheus import Family, parse

ODD = 'quo"te back\\slash'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway with some calls behind it."""
    place = tmp_path_factory.mktemp("metrics")
    servers = {"example": EXAMPLE, "own": scripted(place / "journal"), ODD: {"command": "nothing-at-all"}}
    with running_gateway({"mcpServers": servers}, place / "gateway") as gateway:
        gateway.wait_until_ready("example", "own")
        Session(gateway)
        for _ in range(3):
            modern_call(gateway, "example_calculate", {"expression": "1+1"})
        modern_call(gateway, "example_calculate", {"expression": "nonsense("})
        modern_call(gateway, "example_wait", {"seconds": 0.3})
        error = '{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"no"}}'
        for line in (error, '{"jsonrpc":"2.0","id":ID}', "noise\n" + error):
            modern(gateway, "tools/call", {"name": "own_say", "arguments": {"line": line}})
        modern_call(gateway, "no_such_tool")
        yield gateway


@pytest.fixture
def families(gateway: GatewayProcess) -> dict[str, Family]:
    """Return what the gateway tells, strictly read."""
    answer = gateway.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.body.decode())


def test_every_metric_says_what_it_counts(gateway: GatewayProcess) -> None:
    text = gateway.get("/metrics").body.decode()
    kinds = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert kinds == set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))


def test_calls_are_counted_by_server_and_outcome(families: dict[str, Family]) -> None:
    calls = families["headgate_calls_total"]
    assert calls.kind == "counter"
    name = "headgate_calls_total"
    assert calls.value(name, server="example", outcome="ok") == 4
    # A tool that says that it failed has answered, and has not succeeded.
    assert calls.value(name, server="example", outcome="tool_error") == 1
    assert calls.value(name, server="own", outcome="error") == 2
    assert calls.value(name, server="own", outcome="INVALID_MESSAGE") == 1


def test_the_time_of_calls_is_a_histogram(families: dict[str, Family]) -> None:
    latency = families["tools_call_latency"]
    assert latency.kind == "histogram"
    assert latency.value("tools_call_latency_count") == 8
    assert latency.value("tools_call_latency_bucket", le="0.25") == 7
    assert latency.value("tools_call_latency_bucket", le="+Inf") == 8
    assert 0.3 <= latency.value("tools_call_latency_sum") < 5


def test_each_server_is_in_exactly_one_state(families: dict[str, Family]) -> None:
    states = families["headgate_upstream_state"]
    for server in ("example", "own", ODD):
        values = [value for (_, labels), value in states.samples.items() if dict(labels)["server"] == server]
        assert sorted(values) == [0] * (len(ServerState) - 1) + [1]
    assert states.value("headgate_upstream_state", server="own", state="ready") == 1


def test_servers_tell_their_tools_restarts_and_noise(families: dict[str, Family]) -> None:
    for name, server, value in (
        ("tools", "example", 6),
        ("ignored_messages_total", "own", 1),
        ("restarts_total", "own", 0),
    ):
        family = f"headgate_upstream_{name}"
        assert families[family].value(family, server=server) == value


def test_the_gateway_tells_its_sessions_and_tools(families: dict[str, Family]) -> None:
    assert families["headgate_sessions"].value("headgate_sessions") == 1
    assert families["headgate_tools"].value("headgate_tools") == 18
    assert families["headgate_in_flight"].value("headgate_in_flight") == 0


def test_nothing_that_a_client_makes_up_becomes_a_label(
    gateway: GatewayProcess, families: dict[str, Family]
) -> None:
    before = sum(len(family.samples) for family in families.values())
    for number in range(20):
        modern_call(gateway, f"made_up_{number}")
        modern(gateway, f"made/up/{number}")
    after = parse(gateway.get("/metrics").body.decode())
    assert sum(len(family.samples) for family in after.values()) == before


@pytest.mark.parametrize(
    "wrong",
    [
        "x 1",
        "# TYPE x counter\nx 1\nx 1\n",
        "# TYPE x counter\ny 1\n",
        '# TYPE x gauge\nx{a="b} 1\n',
        "# TYPE x gauge\nx one\n",
        '# TYPE x histogram\nx_bucket{le="1"} 2\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 1\n',
        "hello\n",
    ],
)
def test_the_reader_of_these_tests_is_strict(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(wrong)
