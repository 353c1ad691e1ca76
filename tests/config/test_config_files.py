"""Which file is read, and what is said of a missing or broken one."""

from pathlib import Path

import pytest

from headgate.config.settings import Flags
from tests.config.sandbox import ConfigSandbox

NAMED = {"proxySettings": {"name": "named"}, "mcpServers": {"one": {"builtin": "example"}}}


def called(name: str) -> dict[str, object]:
    return {"proxySettings": {"name": name}, "mcpServers": {"one": {"builtin": "example"}}}


def test_the_first_file_of_the_documented_order_is_read(sandbox: ConfigSandbox) -> None:
    user = sandbox.home / ".config" / "headgate"
    user.mkdir(parents=True)
    sandbox.write(called("user"))
    (sandbox.cwd / "headgate.json").rename(user / "headgate.json")
    assert sandbox.load().name == "user"
    for name in ("mcp-config.json", "mcp_config.json", "mcp.json", "headgate.json"):
        path = sandbox.write(called(name), name)
        settings = sandbox.load()
        assert (settings.name, settings.config_path) == (name, path)
    variable = sandbox.write(called("variable"), "elsewhere.json")
    assert sandbox.load(MCPPROXY_CONFIG_PATH=str(variable)).name == "variable"
    flag = sandbox.write(called("flag"), "flag.json")
    assert sandbox.load(Flags(config=flag), MCPPROXY_CONFIG_PATH=str(variable)).name == "flag"


def test_the_strongest_variable_names_the_file(sandbox: ConfigSandbox) -> None:
    names = ("HEADGATE_CONFIG", "HEADGATE_CONFIG_PATH", "MCPPROXY_CONFIG_PATH")
    environ = {name: str(sandbox.write(called(name), f"{name}.json")) for name in names}
    for name in names:
        assert sandbox.load(**environ).name == name
        del environ[name]


def test_the_users_directory_follows_xdg_config_home(sandbox: ConfigSandbox) -> None:
    directory = sandbox.home / "xdg" / "headgate"
    directory.mkdir(parents=True)
    sandbox.write(called("xdg")).rename(directory / "headgate.json")
    assert sandbox.load().config_path is None
    assert sandbox.load(XDG_CONFIG_HOME=str(sandbox.home / "xdg")).name == "xdg"


def test_relative_names_and_the_tilde_lead_to_the_file(sandbox: ConfigSandbox) -> None:
    sandbox.write(called("relative"), "other.json")
    (sandbox.home / "mine.json").write_bytes(sandbox.write(called("tilde"), "x.json").read_bytes())
    assert sandbox.load(Flags(config=Path("other.json"))).name == "relative"
    assert sandbox.load(HEADGATE_CONFIG="~/mine.json").name == "tilde"


def test_a_named_file_that_is_missing_is_an_error_that_says_what_to_do(sandbox: ConfigSandbox) -> None:
    sandbox.write(NAMED)
    said = sandbox.refusal(Flags(config=Path("nowhere.json")))
    assert str(sandbox.cwd / "nowhere.json") in said
    assert "--config" in said
    assert "create it" in said
    assert "MCPPROXY_CONFIG_PATH" in sandbox.refusal(MCPPROXY_CONFIG_PATH="nowhere.json")


def test_without_any_file_the_gateway_starts_empty_and_says_how_to_add_a_server(
    sandbox: ConfigSandbox,
) -> None:
    settings = sandbox.load()
    assert settings.servers == ()
    assert settings.config_path is None
    (warning,) = settings.warnings
    assert str(sandbox.cwd / "headgate.json") in warning
    assert '"mcpServers"' in warning


def test_a_file_without_servers_says_how_to_add_one(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {}})
    (warning,) = sandbox.load().warnings
    assert "no server" in warning


def test_a_directory_in_the_place_of_the_file_is_an_error_only_when_it_is_named(
    sandbox: ConfigSandbox,
) -> None:
    (sandbox.cwd / "headgate.json").mkdir()
    assert sandbox.load().config_path is None
    assert "cannot be read" in sandbox.refusal(Flags(config=Path("headgate.json")))


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_accepted(sandbox: ConfigSandbox, mark: str) -> None:
    sandbox.write('{"proxySettings": {"name": "Zürich"}}'.encode(mark))
    assert sandbox.load().name == "Zürich"


def test_comments_and_trailing_commas_are_accepted_and_strings_are_left_alone(sandbox: ConfigSandbox) -> None:
    sandbox.write("""
    // one
    {
      /* two
         lines */
      "mcpServers": {
        "a": {"url": "https://example.com/a", /* , } */ "headers": {"X-A": "/* , } // */"}, }, // three
      },
      "proxySettings": {"allowedHosts": ["a.example", ], }, // {
    }""")
    settings = sandbox.load()
    assert settings.servers[0].url == "https://example.com/a"
    assert settings.servers[0].headers == {"X-A": "/* , } // */"}
    assert settings.allowed_hosts == ("a.example",)
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "fix"),
    [
        ('{\n "a": 1\n "b": 2}', 3, 2, "comma"),
        ('{\n "a" 1}', 2, 6, "colon"),
        ("{\n a: 1}", 2, 2, "double quotes"),
        ('{"a": }', 1, 7, "write a value"),
        ('{"a": "x', 1, 7, "close the string"),
        ('{"a": "C:\\dir"}', 1, 10, "backslash"),
        ('{"a": "x\n"}', 1, 9, "line break"),
        ('{"a": 1} x', 1, 10, "remove"),
        ('// a comment\n{"a": 1 "b": 2}', 2, 9, "comma"),
        ("", 1, 1, "write a value"),
    ],
)
def test_broken_json_is_one_sentence_with_line_column_and_fix(
    sandbox: ConfigSandbox, text: str, line: int, column: int, fix: str
) -> None:
    path = sandbox.write(text)
    said = sandbox.refusal()
    assert f"{path} is not valid JSON at line {line}, column {column}" in said
    assert fix in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": "\\ud800"}', "half of a character pair"),
        (b"[1]", "does not hold a JSON object"),
        (b'{"a": NaN}', "not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "smaller number"),
        (b'{"a": ' + b"[" * 100_000, "nested more than 64 deep"),
        (b" " * (4 * 1024 * 1024) + b"{}", "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(sandbox: ConfigSandbox, content: bytes, part: str) -> None:
    sandbox.write(content)
    assert part in sandbox.refusal()


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"builtin": "example"}, "a": {"command": "x"}}}',
        '{"mcpServers": {"a": {"command": "x", "command": "y"}}}',
        '{"mcpServers": {}, "mcpServers": {}}',
    ],
)
def test_a_key_that_appears_twice_is_an_error_and_never_silently_the_last(
    sandbox: ConfigSandbox, text: str
) -> None:
    sandbox.write(text)
    assert "twice" in sandbox.refusal()


def test_a_server_in_both_spellings_of_the_list_is_an_error(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}, "servers": {"a": {"command": "x"}}})
    assert "'a' twice" in sandbox.refusal()


def test_the_spelling_of_vs_code_is_accepted(sandbox: ConfigSandbox) -> None:
    sandbox.write({"servers": {"a": {"type": "stdio", "command": "x"}}, "inputs": []})
    settings = sandbox.load()
    assert [server.name for server in settings.servers] == ["a"]
    assert settings.warnings == ()


@pytest.mark.parametrize("key", ["mcpServers", "servers", "proxySettings"])
@pytest.mark.parametrize("value", [[], "x", 1, True])
def test_a_section_of_the_wrong_kind_is_an_error_that_names_it(
    sandbox: ConfigSandbox, key: str, value: object
) -> None:
    sandbox.write({key: value})
    assert f"{key} in {sandbox.cwd / 'headgate.json'} is" in sandbox.refusal()


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(sandbox: ConfigSandbox) -> None:
    sandbox.write(
        {
            "$schema": "./headgate.schema.json",
            "mcpServer": {},
            "mcp_servers": {"a": {"builtin": "example", "enabeld": False, "autoApprove": []}},
            "proxySettings": {"portt": 1, "redactResults": True},
        }
    )
    path = sandbox.cwd / "headgate.json"
    assert set(sandbox.load().warnings) == {
        f"'mcpServer' in {path} is not a known key; did you mean 'mcpServers'?",
        "'enabeld' in server 'a' is not a known key; did you mean 'enabled'?",
        "'autoApprove' in server 'a' is not a known key",
        f"'portt' in proxySettings in {path} is not a known key; did you mean 'port'?",
        f"'redactResults' in proxySettings in {path} has no effect in this version",
    }


def test_a_directory_that_may_not_be_entered_holds_nothing_for_us(sandbox: ConfigSandbox) -> None:
    # A user directory that is a file stands for it, because root may enter every directory.
    (sandbox.home / ".config").write_text("")
    assert sandbox.load().config_path is None


def test_a_path_with_a_zero_byte_is_an_error(sandbox: ConfigSandbox) -> None:
    assert "control characters" in sandbox.refusal(Flags(config=Path("a\0b")))
