"""The documentation and the schema say what the code does."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from headgate.config import config_files, environment, loader, server_entries
from headgate.config.file_schema import config_schema, config_schema_text
from headgate.config.setting_checks import FILE_FIELDS, FILE_KEYS
from headgate.config.setting_values import allowed_values, is_struct, plain_type, to_camel_case
from headgate.config.settings import Flags, KnowledgeSettings, Settings
from tests.config.sandbox import ConfigSandbox

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
OVERVIEW, SERVERS, DELIVERY, GATEWAY, KNOWLEDGE_PAGE = PAGES = [
    (REFERENCE / name).read_text()
    for name in (
        "settings.md",
        "settings-servers.md",
        "settings-delivery.md",
        "settings-gateway.md",
        "settings-knowledge.md",
    )
]
PAGE = "\n".join(PAGES)
FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}
KEYS = {field: key for key, field in FILE_KEYS.items()}
# The objects in an entry: the keys of one tool are those of the server.
OBJECTS: dict[str, type[msgspec.Struct]] = {
    "probe": server_entries.ProbeEntry,
    "clientCert": server_entries.ClientCertEntry,
    "rate": server_entries.RateEntry,
    "retry": server_entries.RetryEntry,
    "breaker": server_entries.BreakerEntry,
}


def inner(kind: type[msgspec.Struct], above: str) -> dict[str, msgspec.structs.FieldInfo]:
    """Every setting in an object, by its keys."""
    found: dict[str, msgspec.structs.FieldInfo] = {}
    for key, field in server_entries.fields_of(kind).items():
        plain, keys = plain_type(field.type), f"{above}.{key}"
        found |= inner(plain, keys) if is_struct(plain) else {keys: field}
    return found


KNOWLEDGE = inner(KnowledgeSettings, "knowledge")


def row(page: str, first_cell: str) -> list[str]:
    (line,) = re.findall(rf"^\| {re.escape(first_cell)} \|.*$", page, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_published_schema_is_current() -> None:
    published = (DOCS / "headgate.schema.json").read_text()
    assert published == config_schema_text(), (
        "write headgate.config.file_schema.config_schema_text() into docs/headgate.schema.json"
    )


def words(default: object) -> str:
    if default == () or default == {}:
        return "[]" if default == () else "{}"
    return json.dumps(default) if not isinstance(default, str) else default


@pytest.mark.parametrize("field", FILE_FIELDS)
def test_every_setting_of_the_file_is_described_with_its_default_and_range(field: str) -> None:
    _, _, _, default, range_, meaning = row(GATEWAY, f"`{KEYS[field]}`")
    assert meaning
    if FIELDS[field].default not in (None, msgspec.NODEFAULT, KnowledgeSettings()):
        assert default == f"`{words(FIELDS[field].default)}`"
    if field != "host":
        assert range_.startswith(allowed_values(FIELDS[field].type))


@pytest.mark.parametrize("keys", KNOWLEDGE)
def test_every_setting_of_knowledge_is_described_with_its_default_and_range(keys: str) -> None:
    _, _, _, default, range_, meaning = row(KNOWLEDGE_PAGE, f"`{keys}`")
    assert meaning
    if KNOWLEDGE[keys].default is not None:
        assert default == f"`{words(KNOWLEDGE[keys].default)}`"
    assert range_.startswith(allowed_values(KNOWLEDGE[keys].type))


@pytest.mark.parametrize("key", server_entries.SERVER_FIELDS)
def test_every_key_of_a_server_is_described_with_its_default_and_range(key: str) -> None:
    _, default, range_, meaning = row(SERVERS + DELIVERY, f"`{key}`")
    field = server_entries.SERVER_FIELDS[key]
    assert meaning
    if field.default not in (None, "", msgspec.NODEFAULT):
        assert default == f"`{words(field.default)}`"
    if key not in ("url", "cwd", "type"):
        assert range_ == allowed_values(field.type)


@pytest.mark.parametrize(
    ("key", "inner"),
    [(key, inner) for key, kind in OBJECTS.items() for inner in server_entries.fields_of(kind)],
)
def test_every_key_of_an_object_in_a_server_is_described_with_its_default_and_range(
    key: str, inner: str
) -> None:
    _, default, range_, meaning = row(SERVERS + DELIVERY, f"`{key}.{inner}`")
    field = server_entries.fields_of(OBJECTS[key])[inner]
    assert "it is required" in meaning or not field.required
    if field.default not in (None, "", msgspec.NODEFAULT):
        assert default == f"`{words(field.default)}`"
    assert range_ == allowed_values(field.type)


def test_every_object_in_a_server_is_among_those_described() -> None:
    nested = {key for key, field in server_entries.SERVER_FIELDS.items() if is_struct(plain_type(field.type))}
    assert nested == set(OBJECTS)


@pytest.mark.parametrize("part", environment.SETTING_VARIABLES)
def test_every_variable_stands_in_the_row_of_its_setting(part: str) -> None:
    field = environment.SETTING_VARIABLES[part]
    (line,) = re.findall(rf"^.*`HEADGATE_{part}`.*$", PAGE, re.MULTILINE)
    if field in FILE_FIELDS:
        assert f"`{KEYS[field]}`" in line
    if field.startswith("knowledge."):
        assert f"`{'.'.join(map(to_camel_case, field.split('.')))}`" in line
    for name in environment.spellings(part):
        assert name.startswith("MCPPROXY_") or f"`{name}`" in line


def test_the_older_word_for_the_listing_stands_in_its_row() -> None:
    _, variables, *_ = row(GATEWAY, "`listing`")
    assert f"`HEADGATE_{environment.ROUTING}`" in variables


@pytest.mark.parametrize("word", get_args(environment.ROUTING_TYPES))
def test_every_routing_type_is_on_the_page(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_variable_for_the_head_and_the_tail_stands_in_the_row_of_the_size() -> None:
    _, variables, *_ = row(GATEWAY, "`maxResponseSize`")
    assert f"`HEADGATE_{environment.TRUNCATE}`" in variables


@pytest.mark.parametrize(
    "word",
    [
        *config_files.CONFIG_FILE_NAMES,
        *config_files.CONFIG_PATH_VARIABLES,
        *environment.UNPROTECTED,
        *server_entries.RESERVED_SERVER_KEYS,
        *server_entries.SERVER_KEY_ALIASES,
        *loader.RESERVED_PROXY_KEYS,
        *loader.TOP_KEYS,
    ],
)
def test_every_other_word_is_on_the_page(word: str) -> None:
    assert f"`{word}`" in PAGE or f'"{word}"' in PAGE


@pytest.mark.parametrize("flag", [field.name for field in msgspec.structs.fields(Flags)])
def test_every_flag_is_on_the_page(flag: str) -> None:
    assert f"`--{flag.replace('_', '-')}`" in PAGE


FIRST, CONNECTION, SECOND, THIRD = [
    example for page in PAGES for example in re.findall(r"```json\n(.*?)```", page, re.DOTALL)
]


@pytest.mark.parametrize(
    ("example", "enabled"),
    [(FIRST, [True, True, False]), (SECOND, [True, True]), (THIRD, [True])],
    ids=["first", "second", "third"],
)
def test_every_example_of_the_page_is_accepted_as_it_stands(
    sandbox: ConfigSandbox, example: str, enabled: list[bool]
) -> None:
    sandbox.write(example)
    settings = sandbox.load(GITHUB_TOKEN="x", PGPASSWORD="x")
    assert [server.enabled for server in settings.servers] == enabled
    assert settings.warnings == ()
    check(json.loads(example))


def check(document: Any) -> None:
    jsonschema.Draft202012Validator(config_schema()).validate(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"$schema": "x", "mcpServers": {}},
        {"servers": {"a": {"command": "x", "args": ["y"], "timeout": 1, "someOther": 1}}},
        {"mcpServers": {"a": {"serverUrl": "http://a/", "type": "sse", "timeout": "${T:-1}"}}},
        {"proxySettings": {"port": 0, "transport": "streamable-http", "prefix": "${P}", "dataDir": "x"}},
        {
            "proxySettings": {
                "listing": "dynamic",
                "topK": 50,
                "toolsLimit": "${L:-100}",
                "embedder": "OPENAI",
            }
        },
        {
            "proxySettings": {
                "listing": "budget",
                "listingBudgetTokens": 500,
                "clientListings": {"cursor*": "slim"},
                "dialect": "gemini",
                "clientDialects": {"*": "openai"},
            }
        },
        {
            "mcpServers": {
                "a": {"command": "x", "listing": "slim", "pin": ["*"], "hide": [], "rename": {"a": "b"}}
            }
        },
        {
            "mcpServers": {
                "a": {
                    "command": "x",
                    "class": "${C:-read}",
                    "rate": {"perSecond": "${R:-5}"},
                    "tools": {"*": {"keyArgument": "id", "probe": {"tool": "look", "arguments": {"a": [1]}}}},
                    "breaker": {},
                    "cold": "${COLD:-true}",
                }
            }
        },
        {"proxySettings": {"ledgerWindow": 60, "rejoin": 0, "listDeliveryTools": True}},
        {"mcpServers": {"knowledge": {"builtin": "knowledge"}}, "proxySettings": {"knowledge": {}}},
        {
            "proxySettings": {
                "knowledge": {
                    "store": "postgresql://localhost/${P}",
                    "embedder": "BM25",
                    "k": "${K:-1}",
                    "weights": {"vector": 0},
                    "boosts": {"docType": 1},
                    "boost": True,
                    "cacheTtl": 60,
                }
            }
        },
    ],
)
def test_the_schema_accepts_what_the_gateway_accepts(
    sandbox: ConfigSandbox, document: dict[str, object]
) -> None:
    sandbox.write(document)
    sandbox.load(P="true")
    check(document)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"mcpServers": []},
        {"mcpServers": {"": {"command": "x"}}},
        {"mcpServers": {"a": {}}},
        {"mcpServers": {"a": {"command": "x", "url": "http://a/"}}},
        {"mcpServers": {"a": {"command": "x", "args": "y"}}},
        {"mcpServers": {"a": {"command": "x", "timeout": 0}}},
        {"mcpServers": {"a": {"builtin": "other"}}},
        {"proxySettings": {"port": 65536}},
        {"proxySettings": {"port": "8000x"}},
        {"proxySettings": {"listing": "everything"}},
        {"proxySettings": {"listingBudgetTokens": 499}},
        {"proxySettings": {"listingBudgetTokens": 1_000_001}},
        {"proxySettings": {"clientListings": {"a": "all"}}},
        {"proxySettings": {"dialect": "strict"}},
        {"proxySettings": {"clientDialects": {"a": "auto"}}},
        {"mcpServers": {"a": {"command": "x", "listing": "budget"}}},
        {"mcpServers": {"a": {"command": "x", "pin": "all"}}},
        {"mcpServers": {"a": {"command": "x", "rename": {"a": 1}}}},
        {"proxySettings": {"topK": 51}},
        {"proxySettings": {"toolsLimit": 0}},
        {"proxySettings": {"embedder": "WORD2VEC"}},
        {"proxySettings": {"openaiApiKey": 5}},
        {"proxySettings": {"allowedHosts": "x"}},
        {"proxySettings": {"ledgerWindow": 59}},
        {"proxySettings": {"knowledge": []}},
        {"proxySettings": {"knowledge": {"k": 0}}},
        {"proxySettings": {"knowledge": {"weights": {"bm25": -1}}}},
        {"proxySettings": {"knowledge": {"embedder": "WORD2VEC"}}},
        {"mcpServers": {"a": {"command": "x", "class": "safe"}}},
        {"mcpServers": {"a": {"command": "x", "rate": 5}}},
        {"mcpServers": {"a": {"command": "x", "rate": {"burst": 5}}}},
        {"mcpServers": {"a": {"command": "x", "tools": {"pay": {"probe": {"tool": ""}}}}}},
        {"mcpServers": {"a": {"command": "x", "tools": ["pay"]}}},
        {"mcpServers": {"a": {"command": "x", "retry": {"attempts": 11}}}},
    ],
)
def test_the_schema_refuses_what_the_gateway_refuses(document: object) -> None:
    jsonschema.Draft202012Validator.check_schema(config_schema())
    with pytest.raises(jsonschema.ValidationError):
        check(document)


def test_the_example_of_a_proxy_is_read_without_a_warning(sandbox: ConfigSandbox) -> None:
    sandbox.write(CONNECTION)
    settings = sandbox.load(PROXY_PASSWORD="pa")
    assert settings.warnings == ()
    (server,) = settings.servers
    assert server.proxy == "http://gate:pa@proxy.corp.example:3128"
    check(json.loads(CONNECTION))
    check({"mcpServers": {"a": {"url": "https://a/", "clientCert": "me.pem"}}})
