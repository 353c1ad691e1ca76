"""What an entry says of its calls, and what of it is refused."""

from typing import Any

import pytest

from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import (
    BreakerSettings,
    Priority,
    Probe,
    Rate,
    RetrySettings,
    ToolClass,
    ToolSafety,
    UpstreamPolicy,
)
from tests.config.sandbox import ConfigSandbox

REMOTE = {"url": "https://bank.example.com/mcp"}


def load(sandbox: ConfigSandbox, **entry: Any) -> tuple[ServerSpec, tuple[str, ...]]:
    """Load a server that is used; it is remote where nothing else is said."""
    spec, warnings = sandbox.load_server(REMOTE | entry if "command" not in entry else entry)
    assert spec is not None, warnings
    assert spec.enabled
    return spec, warnings


def refusal(sandbox: ConfigSandbox, **entry: Any) -> str:
    """Load a server that is left out; why it is."""
    spec, warnings = sandbox.load_server(REMOTE | entry if "command" not in entry else entry)
    assert spec is None
    (warning,) = warnings
    assert warning.startswith("server 'it' is left out: ")
    return warning.removeprefix("server 'it' is left out: ")


SAID = {
    "class": "keyed",
    "keyArgument": "request_id",
    "keyHeader": "Idempotency-Key",
    "keyWindow": 3600,
    "probe": {"tool": "look", "arguments": {"id": "$arguments.id"}, "happened": "a.found", "settle": 2},
    "ledger": "all",
    "priority": "high",
    "rate": {"perSecond": 0.5, "burst": 3},
    "callTimeout": 30,
}
MEANT = ToolSafety(
    kind=ToolClass.KEYED,
    key_argument="request_id",
    key_header="Idempotency-Key",
    key_window_seconds=3600.0,
    probe=Probe("look", b'{"id":"$arguments.id"}', "a.found", 2.0),
    ledger="all",
    priority=Priority.HIGH,
    rate=Rate(0.5, 3),
    timeout_seconds=30.0,
)


def test_what_is_said_of_calls_is_part_of_the_server(sandbox: ConfigSandbox) -> None:
    spec, warnings = load(
        sandbox,
        **SAID,
        tools={"pay": SAID, "get_*": {"class": "read"}},
        trustAnnotations=False,
        retry={"attempts": 5, "baseDelay": 0.1, "maxDelay": 2},
        breaker={"failures": 3, "rest": 10},
        maxConcurrency=4,
        maxQueue=0,
    )
    assert warnings == ()
    assert spec.policy == UpstreamPolicy(
        all=MEANT,
        tools={"pay": MEANT, "get_*": ToolSafety(kind=ToolClass.READ)},
        trusts_annotations=False,
        retry_settings=RetrySettings(attempts=5, base_seconds=0.1, longest_seconds=2.0),
        breaker_settings=BreakerSettings(failures=3, rest_seconds=10.0),
        window=4,
        queue=0,
    )


def test_a_server_of_which_nothing_is_said_is_plain(sandbox: ConfigSandbox) -> None:
    nothing: list[dict[str, Any]] = [
        {},
        {"tools": {}, "retry": {}, "breaker": {}, "rate": None, "probe": None},
    ]
    for said in nothing:
        spec, warnings = load(sandbox, **said)
        assert (spec.policy, warnings) == (UpstreamPolicy(), ())
        assert spec.policy.is_default
    assert (spec.cold, spec.idle_timeout_seconds, spec.max_restarts) == (False, None, 20)


def test_snake_case_and_null_mean_the_same_inside_of_objects(sandbox: ConfigSandbox) -> None:
    spec, warnings = load(
        sandbox,
        tools={"pay": {"key_argument": "id", "rate": {"per_second": 2, "burst": None}, "probe": None}},
        retry={"base_delay": 1},
    )
    assert warnings == ()
    assert spec.policy.tools == {"pay": ToolSafety(key_argument="id", rate=Rate(2.0, 1))}
    assert spec.policy.retry_settings == RetrySettings(base_seconds=1.0)


def test_words_and_numbers_inside_of_objects_may_come_from_variables(sandbox: ConfigSandbox) -> None:
    entry = {
        "command": "x",
        "tools": {
            "pay": {
                "class": "${CLASS}",
                "rate": {"perSecond": "${RATE}"},
                "probe": {"tool": "look", "arguments": {"account": "${ACCOUNT}"}},
            }
        },
    }
    spec, _ = sandbox.load_server(entry, CLASS="Probeable", RATE="5", ACCOUNT="007")
    assert spec is not None
    policy = spec.policy.tools["pay"]
    assert (policy.kind, policy.rate) == (ToolClass.PROBEABLE, Rate(5.0))
    assert policy.probe == Probe("look", b'{"account":"007"}')
    spec, warnings = sandbox.load_server(entry, CLASS="read", RATE="5")
    assert spec is not None
    assert not spec.enabled
    assert warnings[0].startswith("server 'it' is disabled: in tools.pay.probe.arguments.account ${ACCOUNT}")


def test_a_longest_wait_is_never_shorter_than_the_first(sandbox: ConfigSandbox) -> None:
    spec, _ = load(sandbox, retry={"baseDelay": 20})
    assert spec.policy.retry_settings.longest_seconds == 20


@pytest.mark.parametrize("word", ToolClass)
def test_every_class_can_be_named(sandbox: ConfigSandbox, word: ToolClass) -> None:
    spec, warnings = load(sandbox, **{"class": word.upper()}, keyArgument="id", probe={"tool": "look"})
    assert (spec.policy.all.kind, warnings) == (word, ())


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        (
            {"rate": {"perSecond": 1, "burts": 2}},
            "'burts' in rate of server 'it' is not a known key; did you mean 'burst'?",
        ),
        (
            {"tools": {"pay": {"rates": 1}}},
            "'rates' in tool 'pay' of server 'it' is not a known key; did you mean 'rate'?",
        ),
        (
            {"tools": {"pay": {"rate": {"perSecond": 1, "zzz": 1}}}},
            "'zzz' in rate in tool 'pay' of server 'it' is not a known key",
        ),
        (
            {"tools": {"pay": {"timeout": 1}}},
            "'timeout' in tool 'pay' of server 'it' is not a known key; did you mean 'callTimeout'?",
        ),
        ({"keyArgumnt": "id"}, "'keyArgumnt' in server 'it' is not a known key; did you mean 'keyArgument'?"),
    ],
)
def test_an_unknown_key_inside_is_a_warning_that_names_its_place(
    sandbox: ConfigSandbox, said: dict[str, Any], warning: str
) -> None:
    _, warnings = load(sandbox, **said)
    assert warnings == (warning,)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"class": "safe"}, "class is 'safe', allowed is read, idempotent, keyed, probeable or unsafe"),
        ({"rate": 5}, "rate is 5, allowed is an object with perSecond and burst"),
        ({"rate": {"burst": 2}}, "rate has no perSecond; add perSecond to rate"),
        ({"rate": {"perSecond": 0}}, "perSecond in rate is 0, allowed is a number from 0.001 to 1000000"),
        ({"tools": ["pay"]}, "tools is a list, allowed is an object whose values are objects"),
        ({"tools": {"pay": "read"}}, "tool 'pay' is 'read', allowed is an object with class, keyArgument,"),
        ({"tools": {"pay": {"rate": []}}}, "rate in tool 'pay' is a list, allowed is an object with"),
        (
            {"tools": {"pay": {"rate": {"perSecond": 1, "burst": 0}}}},
            "burst in rate in tool 'pay' is 0, allowed is an integer from 1 to 1000000; correct",
        ),
        (
            {"tools": {"pay": {"callTimeout": "soon"}}},
            "callTimeout in tool 'pay' is 'soon', allowed is a num",
        ),
        ({"tools": {"pay": {"probe": {}}}}, "probe in tool 'pay' has no tool"),
        ({"keyArgument": ""}, "keyArgument is '', allowed is text of 1 to 512 characters"),
        ({"tools": {"pay": {"keyHeader": ""}}}, "keyHeader in tool 'pay' is '', allowed is text of 1 to"),
        ({"probe": {"tool": ""}}, "tool in probe is '', allowed is text of 1 to 512 characters"),
        (
            {"probe": {"tool": "look", "settle": 86_401}},
            "settle in probe is 86401, allowed is a number of seconds",
        ),
        ({"retry": {"attempts": 11}}, "attempts in retry is 11, allowed is an integer from 1 to 10"),
        ({"breaker": {"rest": 0}}, "rest in breaker is 0, allowed is a number of seconds from 0.1 to 3600"),
        ({"ledger": "none"}, "ledger is 'none', allowed is keyed or all"),
        ({"maxRestarts": -1}, "maxRestarts is -1, allowed is an integer from 0 to 1000"),
        ({"maxConcurrency": 0}, "maxConcurrency is 0, allowed is an integer from 1 to 100000"),
        (
            {"rate": {"perSecond": 1, "per_second": 2}},
            "rate of server 'it' has both 'perSecond' and 'per_second'",
        ),
    ],
)
def test_a_wrong_value_inside_names_its_place_and_what_is_allowed(
    sandbox: ConfigSandbox, said: dict[str, Any], sentence: str
) -> None:
    assert refusal(sandbox, **said).startswith(sentence)


def test_the_arguments_of_a_probe_are_never_repeated(sandbox: ConfigSandbox) -> None:
    for arguments in ("hunter2", {"token": "$hunter2"}, {"token": "${A:-$hunter2}"}):
        assert "hunter2" not in refusal(sandbox, probe={"tool": "look", "arguments": arguments})


# What contradicts itself.


def test_a_probeable_tool_needs_a_probe_of_its_own_or_of_its_server(sandbox: ConfigSandbox) -> None:
    probe = {"tool": "look"}
    assert refusal(sandbox, **{"class": "probeable"}).startswith("it is probeable, but has no probe")
    said = refusal(sandbox, tools={"pay": {"class": "probeable"}})
    assert said == "tool 'pay' is probeable, but has no probe; add a probe, or name another class"
    for good in (
        {"class": "probeable", "probe": probe, "tools": {"pay": {"ledger": "all"}}},
        {"probe": probe, "tools": {"pay": {"class": "probeable"}}},
        {"tools": {"pay": {"class": "probeable", "probe": probe}}},
    ):
        _, warnings = load(sandbox, **good)
        assert warnings == ()


def test_a_tool_cannot_tell_of_itself_whether_it_happened(sandbox: ConfigSandbox) -> None:
    said = refusal(sandbox, tools={"pay": {"probe": {"tool": "pay"}}})
    assert said.startswith("the probe of tool 'pay' is the tool itself")
    # Of a whole server the probe is among the tools, and what is said of it alone makes it a reader.
    _, warnings = load(sandbox, probe={"tool": "look"}, tools={"look": {"class": "read"}})
    assert warnings == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "$arguments.deep.er.0"},
        {"a": ["$key", {"b": "$op_id"}]},
        {"a": "order $${arguments.id}"},
        {"a": "costs $$5", "b": "$5"},
    ],
)
def test_a_probe_may_ask_with_whatever_the_call_has(sandbox: ConfigSandbox, arguments: object) -> None:
    _, warnings = load(sandbox, probe={"tool": "look", "arguments": arguments})
    assert warnings == ()


@pytest.mark.parametrize("text", ["$argument.id", "$HOME", "order $${id}", "$result.id"])
def test_a_probe_that_asks_with_what_no_call_has_is_refused(sandbox: ConfigSandbox, text: str) -> None:
    arguments = {"kind": "payment", "id": [text]}
    said = refusal(sandbox, tools={"pay": {"probe": {"tool": "look", "arguments": arguments}}})
    assert said.startswith("'id' of arguments in probe in tool 'pay' cannot be filled in; write $arguments")


def test_a_keyed_class_without_a_key_depends_on_the_server_and_is_a_warning(sandbox: ConfigSandbox) -> None:
    sentence = "is keyed only if the server speaks rmcp with idempotency"
    _, (warning,) = load(sandbox, **{"class": "keyed"})
    assert warning.startswith(f"server 'it' {sentence}")
    _, (warning,) = load(sandbox, tools={"pay": {"class": "keyed"}, "get": {"class": "read"}})
    assert warning.startswith(f"tool 'pay' of server 'it' {sentence}")
    _, warnings = load(sandbox, keyArgument="id", tools={"pay": {"class": "keyed"}})
    assert warnings == ()


def test_reads_can_be_recorded_too(sandbox: ConfigSandbox) -> None:
    spec, warnings = load(sandbox, **{"class": "read", "ledger": "all"})
    assert (spec.policy.all, warnings) == (ToolSafety(kind=ToolClass.READ, ledger="all"), ())


def test_a_header_for_keys_has_no_effect_where_there_are_no_headers(sandbox: ConfigSandbox) -> None:
    spec, warnings = load(
        sandbox, command="x", keyHeader="Idempotency-Key", tools={"pay": {"key_header": "X-Key"}}
    )
    assert warnings == (
        "'keyHeader' in server 'it' has no effect on a server with 'command'",
        "'keyHeader' in tool 'pay' of server 'it' has no effect on a server with 'command'",
    )
    # A tool counts as keyed when it has one, so it must not have one that never arrives.
    assert spec.policy == UpstreamPolicy(tools={"pay": ToolSafety()})


@pytest.mark.parametrize(
    "header",
    [
        "Mcp-Name",
        "content-length",
        "Content-Type",
        "Accept",
        "Host",
        "Last-Event-ID",
        "a b",
        "Key:",
        "Ü",
        "\n",
    ],
)
def test_a_header_for_keys_is_one_that_the_gateway_does_not_write(
    sandbox: ConfigSandbox, header: str
) -> None:
    assert refusal(sandbox, keyHeader=header).startswith("keyHeader is ")
    said = refusal(sandbox, tools={"pay": {"keyHeader": header}})
    assert said.startswith("keyHeader in tool 'pay' is ")
    assert said.isprintable()


def test_a_header_for_keys_is_not_one_that_every_request_has(sandbox: ConfigSandbox) -> None:
    said = refusal(sandbox, headers={"x-key": "hunter2"}, tools={"pay": {"keyHeader": "X-Key"}})
    assert said.startswith("keyHeader in tool 'pay' is 'X-Key', which headers holds")
    assert "hunter2" not in said


def test_a_tool_that_one_before_it_stands_for_is_a_warning(sandbox: ConfigSandbox) -> None:
    _, warnings = load(sandbox, tools={"pay*": {"ledger": "all"}, "pay_now": {}, "pay_*": {}, "get": {}})
    assert warnings == (
        "tool 'pay_now' of server 'it' has no effect: 'pay*' before it stands for it too",
        "tool 'pay_*' of server 'it' has no effect: 'pay*' before it stands for it too",
    )


@pytest.mark.parametrize(
    ("said", "cold"),
    [
        ({"cold": True}, True),
        ({"cold": False}, False),
        ({"hot": True}, False),
        ({"hot": False}, True),
        ({"cold": True, "hot": False}, True),
        ({"cold": False, "hot": True}, False),
        ({"cold": "true", "hot": None}, True),
    ],
)
def test_a_server_is_cold_or_hot_in_both_words(
    sandbox: ConfigSandbox, said: dict[str, Any], *, cold: bool
) -> None:
    spec, warnings = load(sandbox, **said)
    assert (spec.cold, warnings) == (cold, ())


@pytest.mark.parametrize("both", [True, False])
def test_a_server_is_not_cold_and_hot_at_once(sandbox: ConfigSandbox, *, both: bool) -> None:
    said = refusal(sandbox, cold=both, hot=both)
    assert said == "its cold and hot contradict each other; remove one of the two"


def test_the_no_of_a_probe_of_a_remote_server_is_not_believed_soon_unless_the_operator_says_so(
    sandbox: ConfigSandbox,
) -> None:
    probe = {"tool": "look"}
    local, _ = load(sandbox, command="x", probe=probe)
    remote, _ = load(sandbox, command="", url="http://127.0.0.1:1/mcp", probe=probe)
    told, _ = load(sandbox, command="", url="http://127.0.0.1:1/mcp", probe={**probe, "settle": 3})
    settled = [spec.policy.all.probe for spec in (local, remote, told)]
    assert [probe.settle_seconds for probe in settled if probe is not None] == [1.0, None, 3.0]
