"""Counters of the call path, and all metrics in the Prometheus text format."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from headgate.domain.server_spec import ServerState, ServerStatus
from headgate.web.metric_help import METRIC_HELP

# Upper bounds in seconds; from a call inside the gateway to one that takes minutes.
LATENCY_BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)


class CallMetrics:
    """Calls by outcome, and how long they took."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], int] = {}
        self.buckets = [0] * (len(LATENCY_BUCKETS) + 1)
        self.seconds = 0.0

    def count(self, server: str, outcome: str, seconds: float) -> None:
        """One call is over; `outcome` is `ok`, `tool_error`, `error` or the code of a failure."""
        key = (server, outcome)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        self.buckets[bisect_left(LATENCY_BUCKETS, seconds)] += 1
        self.seconds += seconds


# The name of a counter without `_total`, and its label, which may be none.
Counters = dict[tuple[str, str], int]
# The name of a gauge, and its label.
Gauges = dict[tuple[str, str], float]


def server_label(server: str) -> str:
    """The label of what is counted for one server."""
    return f'{{server="{_label(server)}"}}'


def exposition(
    call_metrics: CallMetrics, servers: Iterable[ServerStatus], gauges: Gauges, counters: Counters
) -> bytes:
    """Everything, one metric after the other."""
    lines: list[str] = []
    lines += _calls(call_metrics)
    lines += _latency(call_metrics)
    lines += _servers(list(servers))
    lines += _family("gauge", "", {key: _number(value) for key, value in gauges.items()})
    lines += _family("counter", "_total", {key: str(value) for key, value in counters.items()})
    return ("\n".join(lines) + "\n").encode()


def _family(kind: str, ending: str, values: dict[tuple[str, str], str]) -> Iterator[str]:
    named = ""
    # One after the other, as the format wants it.
    for (name, label), value in sorted(values.items(), key=lambda one: one[0][0]):
        if name != named:
            yield from _head(f"{name}{ending}", kind)
            named = name
        yield f"headgate_{name}{ending}{label} {value}"


def _head(name: str, kind: str) -> Iterator[str]:
    if name in METRIC_HELP:
        yield f"# HELP headgate_{name} {METRIC_HELP[name]}"
    yield f"# TYPE headgate_{name} {kind}"


def _calls(call_metrics: CallMetrics) -> Iterator[str]:
    yield from _head("calls_total", "counter")
    for (server, outcome), count in sorted(call_metrics.outcomes.items()):
        yield f'headgate_calls_total{{server="{_label(server)}",outcome="{_label(outcome)}"}} {count}'


def _latency(call_metrics: CallMetrics) -> Iterator[str]:
    yield "# HELP tools_call_latency Seconds from a tool call's arrival to its answer."
    yield "# TYPE tools_call_latency histogram"
    total = 0
    for bound, count in zip(LATENCY_BUCKETS, call_metrics.buckets, strict=False):
        total += count
        yield f'tools_call_latency_bucket{{le="{bound:g}"}} {total}'
    total += call_metrics.buckets[-1]
    yield f'tools_call_latency_bucket{{le="+Inf"}} {total}'
    yield f"tools_call_latency_sum {_number(call_metrics.seconds)}"
    yield f"tools_call_latency_count {total}"


def _servers(servers: list[ServerStatus]) -> Iterator[str]:
    yield from _head("upstream_state", "gauge")
    for server in servers:
        for state in ServerState:
            value = int(server.state is state)
            yield f'headgate_upstream_state{{server="{_label(server.name)}",state="{state}"}} {value}'
    counters = (
        "restarts",
        "client_connections_opened",
        "server_requests",
        "streams_resumed",
        "ignored_messages",
    )
    for name in counters:
        yield from _head(f"upstream_{name}_total", "counter")
        for server in servers:
            value = getattr(server, name)
            yield f'headgate_upstream_{name}_total{{server="{_label(server.name)}"}} {value}'
    for name in ("tools", "prompts", "resources", "templates", "client_connections"):
        yield from _head(f"upstream_{name}", "gauge")
        for server in servers:
            yield f'headgate_upstream_{name}{{server="{_label(server.name)}"}} {getattr(server, name)}'


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
