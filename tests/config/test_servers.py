"""What one entry of the server list becomes."""

from typing import Any

import pytest

from headgate.domain.listing_mode import Curation, ListingMode
from headgate.domain.server_spec import ServerSpec, TransportType
from tests.config.sandbox import ConfigSandbox


def test_servers_keep_the_order_of_the_file(sandbox: ConfigSandbox) -> None:
    names = ["zeta", "alpha", "Mid", "1"]
    sandbox.write({"mcpServers": {name: {"builtin": "example"} for name in names}})
    assert [server.name for server in sandbox.load().servers] == names


def test_an_entry_with_a_command_is_a_process(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server(
        {"command": "uvx", "args": ["--from", "x y"], "env": {"A": "b"}, "cwd": "/srv"}
    )
    assert spec == ServerSpec(
        name="it",
        transport=TransportType.STDIO,
        command="uvx",
        args=("--from", "x y"),
        env={"A": "b"},
        cwd="/srv",
    )
    assert warnings == ()


def test_an_entry_with_a_url_is_remote(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server(
        {"url": "https://example.com/mcp", "headers": {"Authorization": "x"}}
    )
    assert spec == ServerSpec(
        name="it",
        transport=TransportType.STREAMABLE_HTTP,
        url="https://example.com/mcp",
        headers={"Authorization": "x"},
    )
    assert warnings == ()


def test_an_entry_with_builtin_is_part_of_the_gateway(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server({"builtin": "example"})
    assert spec == ServerSpec(name="it", transport=TransportType.BUILTIN, builtin="example")
    assert warnings == ()


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "http://localhost:8000/sse"}, TransportType.SSE),
        ({"url": "http://localhost:8000/sse/"}, TransportType.SSE),
        ({"url": "http://localhost:8000/sse?key=1#x"}, TransportType.SSE),
        ({"url": "http://localhost:8000/mcp?next=/sse"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost:8000/classes"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost:8000/sse", "transport": "http"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost/mcp", "type": "sse"}, TransportType.SSE),
        ({"url": "http://localhost/sse", "type": "streamable-http"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost/sse", "type": "streamableHttp"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost/sse", "type": "HTTP"}, TransportType.STREAMABLE_HTTP),
        ({"url": "http://localhost/sse", "type": "http", "transport": "streamable-http"}, "streamable-http"),
        ({"serverUrl": "http://localhost/mcp"}, TransportType.STREAMABLE_HTTP),
        ({"httpUrl": "http://localhost/mcp"}, TransportType.STREAMABLE_HTTP),
        ({"command": "x", "type": "stdio"}, TransportType.STDIO),
    ],
)
def test_the_transport_is_what_the_entry_says_or_what_its_url_says(
    sandbox: ConfigSandbox, entry: dict[str, object], transport: str
) -> None:
    spec, warnings = sandbox.load_server(entry)
    assert spec is not None
    assert spec.transport == transport
    assert warnings == ()


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ({"command": "x", "url": "http://a/"}, ["command and url", "exactly one"]),
        ({"command": "x", "builtin": "example"}, ["command and builtin", "exactly one"]),
        ({}, ["none of command, url and builtin", "exactly one"]),
        ({"command": ""}, ["none of command", "exactly one"]),
        ({"command": None, "args": ["x"]}, ["none of command", "exactly one"]),
        ({"command": 1}, ["command is", "allowed is text"]),
        ({"command": []}, ["command is", "allowed is text"]),
        ({"command": [{}]}, ["command[0] is an object", "allowed is text"]),
        ({"command": "x", "args": "--flag"}, ["args is", "a list of strings"]),
        ({"command": "x", "args": [{}]}, ["args[0] is an object", "allowed is text"]),
        ({"command": "x", "env": ["A=b"]}, ["env is", "an object whose values are strings"]),
        ({"command": "x", "env": {"A": []}}, ["env.A is a list", "allowed is text"]),
        ({"command": "x", "env": {"A=B": "c"}}, ["env", "no usable name"]),
        ({"command": "x", "env": {"": "c"}}, ["env", "no usable name"]),
        ({"command": "x", "args": ["a\0b"]}, ["args", "zero byte"]),
        ({"command": "C:\new"}, ["command has a control character", r"\\"]),
        ({"command": "x", "cwd": "a\nb"}, ["cwd is", "a path"]),
        ({"command": "x", "type": "http"}, ["does not fit its command", "stdio"]),
        ({"url": "http://a/", "type": "stdio"}, ["does not fit its url", "streamable-http or sse"]),
        ({"url": "http://a/", "type": "sse", "transport": "http"}, ["does not fit its url"]),
        ({"builtin": "example", "type": "stdio"}, ["does not fit its builtin"]),
        ({"builtin": "exampel"}, ["builtin is 'exampel'", "allowed is example"]),
        ({"command": "x", "type": "carrier-pigeon"}, ["type is 'carrier-pigeon'", "stdio, http"]),
        ({"url": "ftp://a/"}, ["url is not usable", "https://"]),
        ({"url": "localhost:8000/mcp"}, ["url is not usable"]),
        ({"url": "http://"}, ["url is not usable"]),
        ({"url": "http://a b/"}, ["url is not usable"]),
        ({"url": "http://a/\nb"}, ["url is not usable"]),
        ({"url": "http://a:0/"}, ["url is not usable"]),
        ({"url": "http://a:99999/"}, ["url is not usable"]),
        ({"url": "http://[::1/"}, ["url is not usable"]),
        ({"url": "http://a/", "headers": {"A": "b\r\nC: d"}}, ["header 'A'"]),
        ({"url": "http://a/", "headers": {"A B": "c"}}, ["header 'A B'"]),
        ({"command": "x", "enabled": "perhaps"}, ["enabled is 'perhaps'", "true or false"]),
        ({"command": "x", "max_timeout": 1, "maxTimeout": 2}, ["'max_timeout' and 'maxTimeout'"]),
        ("npx", ["definition is 'npx'", "an object"]),
        (None, ["definition is null", "an object"]),
        ([], ["definition is a list", "an object"]),
    ],
)
def test_a_wrong_entry_is_left_out_with_the_server_the_key_and_what_is_allowed(
    sandbox: ConfigSandbox, entry: object, parts: list[str]
) -> None:
    spec, (warning,) = sandbox.load_server(entry)
    assert spec is None
    assert warning.startswith("server 'it' is left out: ")
    assert all(part in warning for part in parts), warning


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "args": "--token=hunter2"},
        {"command": "x", "env": "TOKEN=hunter2"},
        {"url": "hunter2"},
        {"url": "http://a/", "headers": "Authorization: hunter2"},
        {"url": "http://a/", "headers": {"Authorization": "hunter2\n"}},
        {"command": [["hunter2"]]},
    ],
)
def test_no_warning_shows_what_may_be_a_secret(sandbox: ConfigSandbox, entry: dict[str, object]) -> None:
    _, (warning,) = sandbox.load_server(entry)
    assert "hunter2" not in warning


LIMITS = [
    ("timeout", "timeout_seconds", 0.1, 3600),
    ("maxTimeout", "max_timeout_seconds", 60, 86_400),
    ("connectTimeout", "connect_timeout_seconds", 0.1, 300),
    ("startTimeout", "start_timeout_seconds", 0.1, 3600),
    ("idleTimeout", "idle_timeout_seconds", 0.1, 604_800),
]


@pytest.mark.parametrize(("key", "field", "least", "most"), LIMITS)
def test_a_time_is_accepted_at_both_limits(
    sandbox: ConfigSandbox, key: str, field: str, least: float, most: float
) -> None:
    for seconds in (least, most):
        spec, warnings = sandbox.load_server({"command": "x", key: seconds})
        assert spec is not None
        assert getattr(spec, field) == seconds
        assert warnings == ()


@pytest.mark.parametrize(("key", "field", "least", "most"), LIMITS)
@pytest.mark.parametrize("wrong", ["over", 0, 0.09, -1, True, "soon", "nan"])
def test_a_time_beyond_its_limits_leaves_the_server_out(
    sandbox: ConfigSandbox, key: str, field: str, least: float, most: float, wrong: Any
) -> None:
    value = (most + 1 if key != "timeout" else 86_400_001) if wrong == "over" else wrong
    spec, (warning,) = sandbox.load_server({"command": "x", key: value})
    assert spec is None
    assert f"{key} is" in warning
    assert f"to {most}" in warning


def test_a_call_that_may_take_longer_than_the_greatest_time_raises_it(sandbox: ConfigSandbox) -> None:
    spec, _ = sandbox.load_server({"command": "x", "timeout": 1800})
    assert spec is not None
    assert spec.max_timeout_seconds == 1800


@pytest.mark.parametrize(
    ("entry", "enabled"),
    [
        ({}, True),
        ({"enabled": True}, True),
        ({"enabled": False}, False),
        ({"disabled": True}, False),
        ({"disabled": False}, True),
        ({"enabled": True, "disabled": True}, False),
    ],
)
def test_a_server_can_be_turned_off_in_both_spellings(
    sandbox: ConfigSandbox, entry: dict[str, object], *, enabled: bool
) -> None:
    spec, warnings = sandbox.load_server({"command": "x", **entry})
    assert spec is not None
    assert spec.enabled is enabled
    assert warnings == ()


def test_snake_case_is_accepted_and_null_is_not_set(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server(
        {"command": "x", "max_timeout": 100, "start_timeout": 7, "cwd": None}
    )
    assert spec is not None
    assert (spec.max_timeout_seconds, spec.start_timeout_seconds, spec.cwd) == (100, 7, None)
    assert warnings == ()


def test_a_relative_directory_is_relative_to_the_file(sandbox: ConfigSandbox) -> None:
    for given, meant in (("sub", sandbox.cwd / "sub"), ("~/x", sandbox.home / "x"), ("/srv", "/srv")):
        spec, _ = sandbox.load_server({"command": "x", "cwd": given})
        assert spec is not None
        assert spec.cwd == str(meant)


@pytest.mark.parametrize("key", ["limits", "oauth", "behaviour"])
def test_a_key_of_a_later_version_is_a_warning(sandbox: ConfigSandbox, key: str) -> None:
    spec, warnings = sandbox.load_server({"command": "x", key: {"any": "thing"}})
    assert spec is not None
    assert spec.enabled
    assert warnings == (f"{key!r} in server 'it' has no effect in this version",)


def test_a_key_that_does_not_belong_to_the_kind_of_server_is_a_warning(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server({"url": "http://a/mcp", "args": ["x"]})
    assert spec is not None
    assert warnings == ("'args' in server 'it' has no effect on a server with 'url'",)


@pytest.mark.parametrize("name", ["a", "Ü-ber server.com/x", "n" * 128])
def test_a_name_is_any_printable_text(sandbox: ConfigSandbox, name: str) -> None:
    sandbox.write({"mcpServers": {name: {"builtin": "example"}}})
    assert [server.name for server in sandbox.load().servers] == [name]


@pytest.mark.parametrize("name", ["", "n" * 129, "a\nb", "a\x1b[31m", "a\u2028b"])
def test_a_name_that_no_log_line_can_carry_is_left_out(sandbox: ConfigSandbox, name: str) -> None:
    sandbox.write({"mcpServers": {name: {"builtin": "example"}, "good": {"builtin": "example"}}})
    settings = sandbox.load()
    assert [server.name for server in settings.servers] == ["good"]
    (warning,) = settings.warnings
    assert "1 to 128 printable characters" in warning
    assert warning.isprintable()


def test_names_without_prefix_are_for_one_enabled_server(sandbox: ConfigSandbox) -> None:
    one, two = {"builtin": "example"}, {"command": "x"}
    off = {"command": "y", "enabled": False}
    sandbox.write({"mcpServers": {"one": one, "off": off}, "proxySettings": {"prefix": False}})
    assert sandbox.load().prefix is False
    sandbox.write({"mcpServers": {"one": one, "two": two}, "proxySettings": {"prefix": False}})
    said = sandbox.refusal()
    assert "prefix is false" in said
    assert "2 servers are enabled" in said


def test_the_names_of_entries_that_are_left_out_are_known(sandbox: ConfigSandbox) -> None:
    good = {"builtin": "example"}
    sandbox.write({"mcpServers": {"no command": {"args": ["x"]}, "good": good, "number": 5, "off": {**good}}})
    settings = sandbox.load()
    assert list(settings.left_out) == ["no command", "number"]
    assert "exactly one of command, url and builtin" in settings.left_out["no command"]
    assert [server.name for server in settings.servers] == ["good", "off"]
    sandbox.write({"mcpServers": {"good": good}})
    assert sandbox.load().left_out == {}


@pytest.mark.parametrize(
    "header", ["Content-Length", "transfer-encoding", "Connection", "Mcp-Session-Id", "MCP-Protocol-Version"]
)
def test_a_header_that_only_the_gateway_may_write_leaves_the_server_out(
    sandbox: ConfigSandbox, header: str
) -> None:
    spec, (warning,) = sandbox.load_server({"url": "http://a/", "headers": {header: "1", "X-Own": "hunter2"}})
    assert spec is None
    assert header in warning
    assert "take it out of headers" in warning
    assert "hunter2" not in warning


@pytest.mark.parametrize("header", ["Accept", "accept-encoding", "Content-Type"])
def test_a_header_that_the_gateway_chooses_is_dropped_with_a_warning(
    sandbox: ConfigSandbox, header: str
) -> None:
    spec, (warning,) = sandbox.load_server({"url": "http://a/", "headers": {header: "x", "X-Own": "1"}})
    assert spec is not None
    assert spec.headers == {"X-Own": "1"}
    assert header in warning
    assert "no effect" in warning


def test_the_name_that_a_server_is_called_by_may_be_another_than_in_its_url(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server(
        {"url": "http://127.0.0.1:1/mcp", "headers": {"Host": "far.example"}}
    )
    assert spec is not None
    assert spec.headers == {"Host": "far.example"}
    assert warnings == ()


# How its tools are shown.


def test_how_the_tools_of_a_server_are_shown_is_part_of_it(sandbox: ConfigSandbox) -> None:
    entry = {
        "command": "x",
        "listing": "Slim",
        "pin": ["pay*", "look"],
        "hide": ["*_debug"],
        "rename": {"do it": "just_do_it"},
    }
    spec, warnings = sandbox.load_server(entry)
    assert spec is not None
    curation = Curation(ListingMode.SLIM, ("pay*", "look"), ("*_debug",), {"do it": "just_do_it"})
    assert (spec.curation, warnings) == (curation, ())
    plain, _ = sandbox.load_server({"command": "x"})
    assert plain is not None
    assert plain.curation == Curation()


@pytest.mark.parametrize("word", ["full", "slim", "search"])
def test_a_server_is_listed_in_one_of_the_modes_that_are_about_single_tools(
    sandbox: ConfigSandbox, word: str
) -> None:
    spec, warnings = sandbox.load_server({"builtin": "example", "listing": word})
    assert spec is not None
    assert (spec.curation.mode, warnings) == (ListingMode(word), ())


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("listing", "auto", "full, partitioned, slim or search"),
        ("listing", "budget", "full, partitioned, slim or search"),
        ("listing", "dynamic", "full, partitioned, slim or search"),
        ("listing", 5, "full, partitioned, slim or search"),
        ("listing", ["full"], "full, partitioned, slim or search"),
        ("pin", "pay", "a list of strings"),
        ("an entry of pin", [5], "text"),
        ("hide", "pay", "a list of strings"),
        ("hide", {"pay": True}, "a list of strings"),
        ("rename", "pay", "an object whose values are strings"),
        ("rename", ["pay"], "an object whose values are strings"),
        ("'pay' of rename", {"pay": 5}, "text"),
    ],
)
def test_a_server_whose_tools_are_to_be_shown_in_an_odd_way_is_left_out_and_no_other(
    sandbox: ConfigSandbox, key: str, value: Any, allowed: str
) -> None:
    spec, warnings = sandbox.load_server({"command": "x", key.rsplit(maxsplit=1)[-1]: value})
    assert spec is None
    (warning,) = warnings
    assert warning.startswith(f"server 'it' is left out: {key} is ")
    assert f"allowed is {allowed}" in warning


@pytest.mark.parametrize("given", ["", "  ", "***", "\u00fc", "-_-"])
def test_a_new_name_without_a_letter_has_no_effect_and_is_a_warning(
    sandbox: ConfigSandbox, given: str
) -> None:
    spec, warnings = sandbox.load_server({"command": "x", "rename": {"pay": given, "look": "see"}})
    assert spec is not None
    assert spec.curation.renamed == {"look": "see"}
    (warning,) = warnings
    assert warning.startswith("rename in server 'it' gives 'pay' the name ")
    assert warning.endswith("a name needs a letter or a digit")


def test_the_names_of_tools_in_pin_and_hide_may_come_from_variables(sandbox: ConfigSandbox) -> None:
    spec, _ = sandbox.load_server(
        {"command": "x", "pin": ["${TOOL}"], "rename": {"a": "${TOOL}"}}, TOOL="pay"
    )
    assert spec is not None
    assert spec.curation == Curation(pinned=("pay",), renamed={"a": "pay"})
