"""What `${VAR}` becomes, and where its value comes from."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.variable_expansion import expand
from tests.config.sandbox import ConfigSandbox

VALUES = {"A": "one", "B": "two", "EMPTY": "", "TRICKY": "${A}"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "one"),
        ("<${A}-${B}>", "<one-two>"),
        ("${env:A}", "one"),
        ("${A:-x}", "one"),
        ("${NO:-x}", "x"),
        ("${NO:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NO:-${B}}", "two"),
        ("${NO:-<${NO:-${A}}>}!", "<one>!"),
        ("${A:-${NO}}", "one"),
        ("${TRICKY}", "${A}"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${A} ${A}", "${A} one"),
        ("${NO:-$${A}}!", "${A}!"),
        ("${A:-$${B}}!", "one!"),
        ("pa$$word $A $", "pa$$word $A $"),
        ("{} }{", "{} }{"),
    ],
)
def test_references_are_replaced(text: str, expanded: str) -> None:
    assert expand(text, VALUES.get) == (expanded, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${NO}", "${NO} is not set"),
        ("${NO:-${NEITHER}}", "${NEITHER} is not set"),
        ("${A", "not followed by a name"),
        ("${}", "not followed by a name"),
        ("${A-x}", "not followed by a name"),
        ("${1A}", "not followed by a name"),
        ("${NO:-x", "not closed"),
        ("${secret:KEY}", "${secret:KEY} is not available in this version"),
        ("${keyring:KEY}", "${keyring:KEY} is not available in this version"),
        ("${input:api-key}", "${input:api-key} is a value that VS Code asks for: set API_KEY in"),
        ("${command:pick}", "${command:pick} is not known here"),
        ("${NO:-" * 5000, "not followed by a name"),
    ],
)
def test_what_cannot_be_replaced_is_said(text: str, problem: str) -> None:
    _, problems = expand(text, VALUES.get)
    assert problem in problems[0]


def test_every_string_value_is_replaced_however_deep_and_no_key_is() -> None:
    document = {"${A}": ["${A}", {"b": "${B}", "n": 1, "t": True, "z": None}]}
    expanded, problems = expand(document, VALUES.get)
    assert expanded == {"${A}": ["one", {"b": "two", "n": 1, "t": True, "z": None}]}
    assert problems == []


def test_a_problem_names_the_key_that_it_is_in() -> None:
    _, problems = expand({"env": {"T": "${NO}"}, "args": ["x", "${NO}"]}, VALUES.get)
    assert [problem.split(" ${")[0] for problem in problems] == ["in env.T", "in args[1]"]


plain = st.text(st.characters(exclude_characters="${}", codec="utf-8"))
names = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
pieces = st.one_of(
    plain.map(lambda text: (text, text)),
    plain.map(lambda text: (f"$${{{text}}}", f"${{{text}}}")),
    st.tuples(names, plain).map(lambda pair: (f"${{{pair[0]}:-{pair[1]}}}", VALUES.get(pair[0]) or pair[1])),
    st.sampled_from([("${A}", "one"), ("${B}", "two"), ("${EMPTY}", "")]),
)


@given(st.lists(pieces))
def test_only_an_escape_leaves_a_reference_behind(parts: list[tuple[str, str]]) -> None:
    written, meant = ("".join(part[side] for part in parts) for side in (0, 1))
    assert expand(written, VALUES.get) == (meant, [])


@given(st.text("${}:-A_x"))
def test_any_text_is_replaced_or_said_to_be_wrong(text: str) -> None:
    expanded, problems = expand(text, VALUES.get)
    assert isinstance(expanded, str)
    if "${" not in text:
        assert (expanded, problems) == (text, [])


def server(sandbox: ConfigSandbox, value: str, **environ: str) -> tuple[str | None, tuple[str, ...]]:
    spec, warnings = sandbox.load_server({"command": "x", "env": {"V": value}}, **environ)
    assert spec is not None
    return (spec.env.get("V") if spec.enabled else None), warnings


def test_the_environment_wins_over_the_env_file_and_that_over_a_secret(sandbox: ConfigSandbox) -> None:
    assert server(sandbox, "${V}")[0] is None
    (sandbox.secrets / "V").write_text("secret\n")
    assert server(sandbox, "${V}") == ("secret", ())
    (sandbox.cwd / ".env").write_text("V=beside\n")
    assert server(sandbox, "${V}") == ("beside", ())
    assert server(sandbox, "${V}", V="environment") == ("environment", ())


def test_the_env_file_beside_the_configuration_is_read_not_the_one_of_the_working_directory(
    sandbox: ConfigSandbox,
) -> None:
    (sandbox.cwd / ".env").write_text("V=wrong\n")
    (sandbox.home / ".env").write_text("V=right\n")
    config = sandbox.write({"mcpServers": {"a": {"command": "${V}"}}}).rename(sandbox.home / "c.json")
    assert sandbox.load(HEADGATE_CONFIG=str(config)).servers[0].command == "right"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("V=plain", "plain"),
        ("  export V = spaced  ", "spaced"),
        ('V="quoted # \\" \\n"', 'quoted # " \n'),
        ("V='single # \\n'", "single # \\n"),
        ("V=with # comment", "with"),
        ("V=a#b", "a#b"),
        ("V=a=b", "a=b"),
        ('V="x" # comment', "x"),
        ("V=", ""),
        ("# V=no\n\nV=after", "after"),
        ("V=windows\r", "windows"),
        ("\ufeffV=mark", "mark"),
    ],
)
def test_a_line_of_the_env_file(sandbox: ConfigSandbox, line: str, value: str) -> None:
    (sandbox.cwd / ".env").write_text(line + "\n", newline="")
    assert server(sandbox, "<${V}>") == (f"<{value}>", ())


def test_a_bad_line_of_the_env_file_is_told_by_its_number_alone(sandbox: ConfigSandbox) -> None:
    (sandbox.cwd / ".env").write_text("V=good\nhunter2\n")
    value, (warning,) = server(sandbox, "${V}")
    assert value == "good"
    assert "line 2" in warning
    assert "hunter2" not in warning


def test_an_env_file_that_is_not_text_is_a_warning(sandbox: ConfigSandbox) -> None:
    (sandbox.cwd / ".env").write_bytes(b"V=\xff")
    value, warnings = server(sandbox, "${V:-default}")
    assert value == "default"
    assert "UTF-8" in warnings[0]


def test_the_env_file_does_not_make_settings(sandbox: ConfigSandbox) -> None:
    (sandbox.cwd / ".env").write_text("MCPPROXY_PORT=1\n")
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    assert sandbox.load().port == 8000


def test_a_secret_may_hold_what_looks_like_a_reference(sandbox: ConfigSandbox) -> None:
    (sandbox.secrets / "V").write_text("a${B}c")
    assert server(sandbox, "${V}") == ("a${B}c", ())


def test_environment_bytes_that_are_not_text_are_not_a_value(sandbox: ConfigSandbox) -> None:
    value, (warning,) = server(sandbox, "${V}", V="\udcff")
    assert value is None
    assert "${V}" in warning


def test_a_missing_variable_disables_only_its_server_and_names_itself(sandbox: ConfigSandbox) -> None:
    spec, (warning,) = sandbox.load_server({"url": "https://${HOST}/sse", "headers": {"A": "${TOKEN:-x}"}})
    assert spec is not None
    assert not spec.enabled
    assert spec.transport == "sse"
    assert "server 'it' is disabled: in url ${HOST} is not set" in warning


def test_the_place_of_a_missing_variable_stays_on_one_line(sandbox: ConfigSandbox) -> None:
    _, (warning,) = sandbox.load_server({"command": "x", "env": {"a\nb": "${NO}"}})
    assert warning.startswith("server 'it' is disabled: in env.'a\\nb' ${NO} is not set")


@pytest.mark.parametrize("word", ["secret", "keyring"])
def test_a_word_for_later_disables_only_its_server(sandbox: ConfigSandbox, word: str) -> None:
    spec, (warning,) = sandbox.load_server({"command": "x", "env": {"K": f"${{{word}:K}}"}})
    assert spec is not None
    assert not spec.enabled
    assert "not available in this version" in warning


@pytest.mark.parametrize("off", [{"enabled": False}, {"disabled": True}, {"enabled": "${NO_E:-false}"}])
def test_nobody_hears_of_the_missing_variables_of_a_server_that_is_off(
    sandbox: ConfigSandbox, off: dict[str, object]
) -> None:
    spec, warnings = sandbox.load_server({"command": "x", "args": ["${NO}"], **off})
    assert spec is not None
    assert not spec.enabled
    assert warnings == ()


@pytest.mark.parametrize("entry", [{"env": {"K": "${NO}"}}, {"command": "${NO}", "url": "${NO}"}])
def test_a_server_without_a_kind_is_left_out_though_a_variable_is_missing(
    sandbox: ConfigSandbox, entry: dict[str, object]
) -> None:
    spec, warnings = sandbox.load_server(entry)
    assert spec is None
    assert "exactly one of command, url and builtin" in warnings[-1]


def test_a_missing_variable_in_the_settings_is_an_error(sandbox: ConfigSandbox) -> None:
    sandbox.write({"proxySettings": {"name": "${NO}"}})
    said = sandbox.refusal()
    assert "proxySettings.name in" in said
    assert "${NO} is not set" in said


def test_a_variable_can_stand_for_a_number_and_a_boolean(sandbox: ConfigSandbox) -> None:
    sandbox.write(
        {
            "mcpServers": {"a": {"command": "x", "timeout": "${T:-5}", "enabled": "${E:-true}"}},
            "proxySettings": {"port": "${P}", "prefix": "${NO:-false}"},
        }
    )
    settings = sandbox.load(P="1234")
    assert (settings.port, settings.prefix) == (1234, False)
    assert (settings.servers[0].timeout_seconds, settings.servers[0].enabled) == (5.0, True)
