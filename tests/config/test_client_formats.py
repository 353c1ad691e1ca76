"""Entries as other MCP clients write them keep their servers."""

from pathlib import Path
from typing import Any

import pytest

from headgate.domain.redaction import redact_secrets
from headgate.domain.server_spec import ServerSpec
from tests.config.sandbox import ConfigSandbox


def loaded(
    sandbox: ConfigSandbox, entry: dict[str, Any], **environ: str
) -> tuple[ServerSpec, tuple[str, ...]]:
    spec, warnings = sandbox.load_server(entry, **environ)
    assert spec is not None, warnings
    assert spec.enabled, warnings
    return spec, warnings


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(60_000, 60), (600_000, 600), ("30000", 30), (3601, 3.601), (5000.0, 5), (7_200_000, 3600)],
)
def test_a_timeout_that_is_too_large_for_seconds_is_one_of_milliseconds(
    sandbox: ConfigSandbox, written: object, seconds: float
) -> None:
    spec, (warning,) = loaded(sandbox, {"command": "x", "timeout": written})
    assert spec.timeout_seconds == seconds
    assert f"read as milliseconds: {seconds:g} s are in force" in warning
    assert "server 'it'" in warning


def test_a_timeout_in_seconds_stays(sandbox: ConfigSandbox) -> None:
    for seconds in (0.1, 60, 1000, 3600):
        spec, warnings = loaded(sandbox, {"command": "x", "timeout": seconds})
        assert (spec.timeout_seconds, warnings) == (seconds, ())


def test_numbers_booleans_and_null_in_env_are_what_a_shell_would_get(sandbox: ConfigSandbox) -> None:
    env = {"PORT": 8080, "RATE": 0.5, "DEBUG": True, "QUIET": False, "ABSENT": None, "NAME": "x"}
    spec, warnings = loaded(sandbox, {"command": "x", "env": env})
    assert spec.env == {"PORT": "8080", "RATE": "0.5", "DEBUG": "true", "QUIET": "false", "NAME": "x"}
    assert warnings == ()


def test_numbers_in_args_and_headers_are_text(sandbox: ConfigSandbox) -> None:
    spec, warnings = loaded(sandbox, {"command": "x", "args": ["--port", 8080, True]})
    assert (spec.args, warnings) == (("--port", "8080", "true"), ())
    spec, warnings = loaded(sandbox, {"url": "http://a/", "headers": {"X-Team": 7, "X-Off": None}})
    assert (spec.headers, warnings) == ({"X-Team": "7"}, ())


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"command": "x", "env": {"LIST": ["hunter2"]}}, "env.LIST is a list"),
        ({"command": "x", "env": {"MAP": {"a": "hunter2"}}}, "env.MAP is an object"),
        ({"command": "x", "args": ["a", ["hunter2"]]}, "args[1] is a list"),
        ({"command": "x", "args": [None]}, "args[0] is null"),
        ({"url": "http://a/", "headers": {"X": ["hunter2"]}}, "headers.X is a list"),
    ],
)
def test_a_value_that_is_no_text_is_named_and_not_shown(
    sandbox: ConfigSandbox, entry: dict[str, Any], named: str
) -> None:
    spec, (warning,) = sandbox.load_server(entry)
    assert spec is None
    assert named in warning
    assert "hunter2" not in warning


def test_a_whole_command_line_is_split(sandbox: ConfigSandbox) -> None:
    entry = {"command": "npx -y '@scope/a server' --token hunter2"}
    spec, (warning,) = loaded(sandbox, entry)
    assert (spec.command, spec.args) == ("npx", ("-y", "@scope/a server", "--token", "hunter2"))
    assert "command of server 'it' is a whole command line, read as the program 'npx' with 4 arg" in warning
    assert "hunter2" not in warning


def test_the_arguments_follow_those_of_the_command_line(sandbox: ConfigSandbox) -> None:
    spec, _ = loaded(sandbox, {"command": "npx -y", "args": ["server", "/srv"]})
    assert (spec.command, spec.args) == ("npx", ("-y", "server", "/srv"))


def test_variables_before_the_program_are_its_environment(sandbox: ConfigSandbox) -> None:
    spec, _ = loaded(sandbox, {"command": "A=1 B='two words' uvx server", "env": {"A": "entry"}})
    assert (spec.command, spec.args) == ("uvx", ("server",))
    assert spec.env == {"A": "entry", "B": "two words"}


def test_a_list_is_a_program_and_its_arguments(sandbox: ConfigSandbox) -> None:
    spec, warnings = loaded(sandbox, {"command": ["uvx", "server", "--port", 80]})
    assert (spec.command, spec.args, warnings) == ("uvx", ("server", "--port", "80"), ())


def test_a_program_whose_path_has_spaces_is_one_program(sandbox: ConfigSandbox) -> None:
    program = sandbox.cwd / "My Server" / "run it"
    program.parent.mkdir()
    program.touch(mode=0o755)
    spec, warnings = loaded(sandbox, {"command": str(program)})
    assert (spec.command, spec.args, warnings) == (str(program), (), ())


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("cd /srv && npx server", '"args": ["-c", "the line"]'),
        ("server | tee log", '"command": "sh"'),
        ("npx 'server", "a quote that is not closed"),
    ],
)
def test_a_line_that_cannot_be_split_says_how_to_write_it(
    sandbox: ConfigSandbox, command: str, hint: str
) -> None:
    spec, (warning,) = sandbox.load_server({"command": command})
    assert spec is None
    assert hint in warning


def test_an_env_file_is_read_and_the_entry_wins(sandbox: ConfigSandbox) -> None:
    (sandbox.cwd / "keys.env").write_text("A=file\nB='of file'\n")
    spec, warnings = loaded(sandbox, {"command": "x", "envFile": "keys.env", "env": {"A": "entry"}})
    assert (spec.env, warnings) == ({"A": "entry", "B": "of file"}, ())
    spec, _ = loaded(sandbox, {"command": "x", "envFile": "${workspaceFolder}/keys.env"})
    assert spec.env["A"] == "file"
    assert sandbox.load().env_files == (sandbox.cwd / "keys.env",)


def test_an_env_file_that_is_missing_keeps_the_server_and_says_so(sandbox: ConfigSandbox) -> None:
    _, (warning,) = loaded(sandbox, {"command": "x", "envFile": "gone.env"})
    assert warning.startswith("envFile of server 'it' does not exist")
    assert str(sandbox.cwd / "gone.env") in warning


@pytest.mark.parametrize("directory", [".vscode", ".cursor"])
def test_the_workspace_is_the_folder_above_the_editors_own(sandbox: ConfigSandbox, directory: str) -> None:
    (sandbox.cwd / directory).mkdir()
    entry = {"command": "x", "args": ["${workspaceFolder}${/}a", "${workspaceFolderBasename}", "${userHome}"]}
    path = sandbox.write({"servers": {"it": entry}}, f"{directory}/mcp.json")
    (spec,) = sandbox.load(HEADGATE_CONFIG=str(path)).servers
    assert spec.args == (f"{sandbox.cwd}/a", sandbox.cwd.name, str(sandbox.home))


def inputs(sandbox: ConfigSandbox, reference: str, **environ: str) -> tuple[ServerSpec, tuple[str, ...]]:
    asked = [{"id": "api-key", "type": "promptString", "password": True}, {"id": "zone", "default": "eu"}]
    sandbox.write({"inputs": asked, "servers": {"it": {"command": "x", "env": {"API_KEY": reference}}}})
    settings = sandbox.load(**environ)
    return settings.servers[0], settings.warnings


def test_what_vs_code_asks_for_comes_from_a_variable_or_its_default(sandbox: ConfigSandbox) -> None:
    spec, warnings = inputs(sandbox, "${input:api-key}", API_KEY="hunter2")
    assert (spec.env, warnings) == ({"API_KEY": "hunter2"}, ())
    (sandbox.secrets / "api-key").write_text("of a file\n")
    assert inputs(sandbox, "${input:api-key}")[0].env == {"API_KEY": "of a file"}
    assert inputs(sandbox, "Bearer ${input:zone}")[0].env == {"API_KEY": "Bearer eu"}


@pytest.mark.parametrize(
    ("reference", "advice"),
    [
        ("${input:api-key}", "${input:api-key} is a value that VS Code asks for: set API_KEY in the"),
        ("${GITHUB_TOKEN}", "${GITHUB_TOKEN} is not set: set GITHUB_TOKEN in the environment"),
        ("${env:MY_SECRET}", "${MY_SECRET} is not set: set MY_SECRET in the environment"),
        ("${secret:PASSWORD}", "${secret:PASSWORD} is not available in this version: use ${PASSWORD}"),
        ("Bearer ${TOKEN", "a ${ is not followed by a name and }: write ${NAME}"),
    ],
)
def test_the_log_names_the_variable_that_is_missing(
    sandbox: ConfigSandbox, reference: str, advice: str
) -> None:
    spec, (warning,) = inputs(sandbox, reference)
    assert not spec.enabled
    assert "in env.API_KEY" in warning
    # What the log does to every line must leave the advice.
    assert advice in redact_secrets(warning)


@pytest.mark.parametrize(
    "identifier", ["../../etc/hostname", "..", "/etc/hostname"], ids=["above", "parent", "absolute"]
)
def test_the_id_of_an_input_names_no_file_elsewhere(sandbox: ConfigSandbox, identifier: str) -> None:
    assert Path("/etc/hostname").exists()
    spec, _ = inputs(sandbox, f"${{input:{identifier}}}")
    assert not spec.enabled


SERVER = {"command": "x", "args": ["y"]}


@pytest.mark.parametrize(
    "document",
    [
        {"context_servers": {"it": {"source": "custom", **SERVER}}, "theme": "One Dark"},
        {"context_servers": {"it": {"command": {"path": "x", "args": ["y"], "env": None}, "settings": {}}}},
        {"mcp": {"servers": {"it": {"type": "stdio", **SERVER}}, "inputs": []}, "editor.fontSize": 12},
        {"amp.mcpServers": {"it": SERVER}},
    ],
    ids=["zed", "zed before", "vs code settings", "amp"],
)
def test_servers_in_the_settings_of_an_editor_are_kept(
    sandbox: ConfigSandbox, document: dict[str, Any]
) -> None:
    sandbox.write(document)
    (spec,) = sandbox.load().servers
    assert (spec.name, spec.command, spec.args, spec.enabled) == ("it", "x", ("y",), True)


def test_a_default_of_vs_codes_settings_is_filled_in(sandbox: ConfigSandbox) -> None:
    inputs = [{"type": "promptString", "id": "team", "default": "blue"}]
    entry = {"command": "x", "env": {"TEAM": "${input:team}"}}
    sandbox.write({"mcp": {"servers": {"it": entry}, "inputs": inputs}})
    (spec,) = sandbox.load().servers
    assert spec.env == {"TEAM": "blue"}


@pytest.mark.parametrize("key", ["excludeTools", "disabledTools"])
def test_tools_that_another_client_excludes_stay_hidden(sandbox: ConfigSandbox, key: str) -> None:
    spec, warnings = loaded(sandbox, {"command": "x", key: ["drop_table"]})
    assert spec.curation.hides("drop_table")
    assert not spec.curation.hides("list_tables")
    assert warnings == ()


def test_a_file_without_servers_keeps_its_other_keys_in_the_warning(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcp": {"enabled": True}})
    assert "'mcp' in " in sandbox.load().warnings[0]
