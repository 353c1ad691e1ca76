"""`inheritEnv`, for one server and for all."""

import pytest

from tests.config.sandbox import ConfigSandbox


def test_a_server_inherits_the_variables_of_all_and_its_own(sandbox: ConfigSandbox) -> None:
    entry = {"command": "x", "inheritEnv": ["AWS_*", "TEAM"]}
    sandbox.write(
        {
            "mcpServers": {"a": entry, "b": {"command": "y"}, "c": {"url": "http://x/"}},
            "proxySettings": {"inheritEnv": ["TEAM", "KUBECONFIG"]},
        }
    )
    settings = sandbox.load()
    a, b, c = settings.servers
    assert a.inherit_env == ("TEAM", "KUBECONFIG", "AWS_*")
    assert b.inherit_env == ("TEAM", "KUBECONFIG")
    assert c.inherit_env == ()
    assert settings.warnings == ()


@pytest.mark.parametrize("name", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH"])
def test_a_variable_that_loads_code_is_a_warning(sandbox: ConfigSandbox, name: str) -> None:
    spec, warnings = sandbox.load_server({"command": "x", "inheritEnv": [name]})
    assert spec is not None
    assert spec.inherit_env == (name,)
    (warning,) = warnings
    assert f"inheritEnv of server 'it' passes on {name!r}, which loads code" in warning
    (warning,) = sandbox.load_settings(inheritEnv=[name]).warnings
    assert f"proxySettings.inheritEnv passes on {name!r}, which loads code" in warning


def test_a_pattern_for_what_loads_code_says_that_it_does_not_work(sandbox: ConfigSandbox) -> None:
    _, (warning,) = sandbox.load_server({"command": "x", "inheritEnv": ["LD_*"]})
    assert "write the whole name" in warning


@pytest.mark.parametrize("wrong", [["A=secret"], [""], ["A\0B"], "A", [1]])
def test_what_is_no_name_is_refused_without_its_value(sandbox: ConfigSandbox, wrong: object) -> None:
    spec, (warning,) = sandbox.load_server({"command": "x", "inheritEnv": wrong})
    assert spec is None
    assert "inheritEnv" in warning
    assert "secret" not in warning


@pytest.mark.parametrize("wrong", [["A=secret"], [""], "A"])
def test_what_is_no_name_for_all_ends_the_start(sandbox: ConfigSandbox, wrong: object) -> None:
    sandbox.write({"mcpServers": {}, "proxySettings": {"inheritEnv": wrong}})
    refusal = sandbox.refusal()
    assert "inheritEnv" in refusal
    assert "secret" not in refusal


def test_a_server_without_a_process_has_no_use_for_it(sandbox: ConfigSandbox) -> None:
    _, (warning,) = sandbox.load_server({"url": "http://x/", "inheritEnv": ["A"]})
    assert "'inheritEnv' in server 'it' has no effect on a server with 'url'" in warning
