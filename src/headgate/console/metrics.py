"""The numbers of the gateway in the text format of Prometheus."""

from collections.abc import Iterable, Iterator

from headgate.console.tally import BUCKETS, Tally
from headgate.domain.server import ServerStatus, State

# The name of a counter without `_total`, and its label, which may be none.
Counters = dict[tuple[str, str], int]
# The name of a gauge, and its label.
Gauges = dict[tuple[str, str], float]


def of_server(server: str) -> str:
    """The label of what is counted for one server."""
    return f'{{server="{_label(server)}"}}'


def exposition(tally: Tally, servers: Iterable[ServerStatus], gauges: Gauges, counters: Counters) -> bytes:
    """Everything, one metric after the other."""
    lines: list[str] = []
    lines += _calls(tally)
    lines += _latency(tally)
    lines += _servers(list(servers))
    lines += _family("gauge", "", {key: _number(value) for key, value in gauges.items()})
    lines += _family("counter", "_total", {key: str(value) for key, value in counters.items()})
    return ("\n".join(lines) + "\n").encode()


def _family(kind: str, ending: str, values: dict[tuple[str, str], str]) -> Iterator[str]:
    named = ""
    # One after the other, as the format wants it.
    for (name, label), value in sorted(values.items(), key=lambda one: one[0][0]):
        if name != named:
            yield f"# TYPE headgate_{name}{ending} {kind}"
            named = name
        yield f"headgate_{name}{ending}{label} {value}"


def _calls(tally: Tally) -> Iterator[str]:
    yield "# HELP headgate_calls_total Tool calls by upstream and outcome."
    yield "# TYPE headgate_calls_total counter"
    for (server, outcome), count in sorted(tally.outcomes.items()):
        yield f'headgate_calls_total{{server="{_label(server)}",outcome="{_label(outcome)}"}} {count}'


def _latency(tally: Tally) -> Iterator[str]:
    yield "# HELP tools_call_latency Seconds from a tool call's arrival to its answer."
    yield "# TYPE tools_call_latency histogram"
    total = 0
    for bound, count in zip(BUCKETS, tally.buckets, strict=False):
        total += count
        yield f'tools_call_latency_bucket{{le="{bound:g}"}} {total}'
    total += tally.buckets[-1]
    yield f'tools_call_latency_bucket{{le="+Inf"}} {total}'
    yield f"tools_call_latency_sum {_number(tally.seconds)}"
    yield f"tools_call_latency_count {total}"


def _servers(servers: list[ServerStatus]) -> Iterator[str]:
    yield "# HELP headgate_upstream_state 1 for the state that the upstream is in."
    yield "# TYPE headgate_upstream_state gauge"
    for server in servers:
        for state in State:
            value = int(server.state is state)
            yield f'headgate_upstream_state{{server="{_label(server.name)}",state="{state}"}} {value}'
    counters = ("restarts", "lines_opened", "questions", "streams_resumed", "noise_lines")
    for name in counters:
        yield f"# TYPE headgate_upstream_{name}_total counter"
        for server in servers:
            value = getattr(server, name)
            yield f'headgate_upstream_{name}_total{{server="{_label(server.name)}"}} {value}'
    for name in ("tools", "prompts", "resources", "templates", "lines"):
        yield f"# TYPE headgate_upstream_{name} gauge"
        for server in servers:
            yield f'headgate_upstream_{name}{{server="{_label(server.name)}"}} {getattr(server, name)}'


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
