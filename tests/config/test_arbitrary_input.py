"""Whatever the file and the environment hold, the answer is settings or one sentence."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config.environment import KNOWN_VARIABLES
from headgate.config.loader import load
from headgate.config.server_entries import RESERVED_SERVER_KEYS, SERVER_FIELDS, ToolPolicyEntry, fields_of
from headgate.config.setting_checks import FILE_ALIASES, FILE_KEYS
from headgate.config.setting_values import is_struct, plain_type
from headgate.config.settings import Flags
from headgate.domain.errors import ConfigError

texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["${A}", "${A:-1}", "${", "$${", "$key", "~", "http://a/sse", "http", "true", "0", "1e999", "\0"]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
# The objects in an entry, by their own keys.
nested = st.one_of(
    [
        st.dictionaries(st.sampled_from([*fields_of(kind)]) | texts, values, max_size=4)
        for field in SERVER_FIELDS.values()
        if is_struct(kind := plain_type(field.type))
    ]
)
policies = st.dictionaries(
    st.sampled_from([*fields_of(ToolPolicyEntry)]) | texts, nested | values, max_size=5
)
tools = st.dictionaries(texts, policies | values, max_size=3)
entries = values | st.dictionaries(
    st.sampled_from([*SERVER_FIELDS, *RESERVED_SERVER_KEYS]) | texts, values | nested | tools, max_size=5
)
servers = values | st.dictionaries(texts, entries, max_size=4)
proxy = values | st.dictionaries(st.sampled_from([*FILE_KEYS, *FILE_ALIASES]), values, max_size=5)
documents = values | st.fixed_dictionaries(
    {}, optional={"mcpServers": servers, "proxySettings": proxy, "x": values}
)


def outcome(content: bytes, environ: dict[str, str]) -> None:
    with TemporaryDirectory() as directory:
        cwd = Path(directory)
        (cwd / "headgate.json").write_bytes(content)
        try:
            found = load(Flags(), {"HOME": directory} | environ, cwd, secrets=cwd)
        except ConfigError as error:
            sentences = [error.message, error.hint]
        else:
            sentences = [*found.warnings]
            assert all(server.name for server in found.servers)
    for sentence in sentences:
        assert "\n" not in sentence
        assert sentence.encode()


@settings(deadline=None, max_examples=300)
@given(documents)
def test_any_json_is_settings_or_one_sentence(document: Any) -> None:
    outcome(json.dumps(document).encode(), {})


@settings(deadline=None, max_examples=60)
@given(policies, tools)
def test_anything_said_of_calls_is_a_server_or_one_sentence(said: Any, of_tools: Any) -> None:
    entry = {**said, "command": "x", "tools": of_tools}
    outcome(json.dumps({"mcpServers": {"a": entry}}).encode(), {})


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text('{}[]",:/*\\ \n1ae', max_size=60).map(str.encode))
def test_any_bytes_are_settings_or_one_sentence(content: bytes) -> None:
    outcome(content, {})


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KNOWN_VARIABLES) | st.just("A"), texts, max_size=4))
def test_any_environment_is_settings_or_one_sentence(environ: dict[str, str]) -> None:
    outcome(b'{"mcpServers": {"a": {"command": "${A}"}}}', environ)
