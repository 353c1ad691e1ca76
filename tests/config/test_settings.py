"""Where each setting comes from, which source wins, and what each accepts."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from headgate.config.settings import Flags, Listing, Settings
from tests.config.sandbox import ConfigSandbox


def test_the_defaults_are_those_of_the_documentation(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load()
    assert settings == Settings(data_dir=sandbox.home / ".headgate", warnings=settings.warnings)
    assert (settings.name, settings.prefix, settings.listing) == ("headgate", True, "auto")
    assert (settings.listing_budget_tokens, settings.dialect) == (3000, "auto")
    assert (settings.client_listings, settings.client_dialects) == ({}, {})
    assert (settings.transport, settings.host, settings.port) == ("stdio", "127.0.0.1", 8000)
    assert (settings.tool_name_limit, settings.log_level, settings.log_format) == (None, "INFO", None)
    assert (settings.top_k, settings.tools_limit, settings.embedder) == (5, 15, None)
    assert (settings.hf_model, settings.openai_base_url, settings.openai_model, settings.openai_api_key) == (
        "sentence-transformers/all-MiniLM-L6-v2",
        "https://api.openai.com/v1",
        "text-embedding-3-small",
        None,
    )
    assert (settings.max_body_bytes, settings.max_header_bytes, settings.max_headers) == (
        4 << 20,
        32 << 10,
        100,
    )
    assert (settings.header_timeout_seconds, settings.body_timeout_seconds) == (10, 30)
    assert (settings.max_upstream_message_bytes, settings.spool_above_bytes) == (256 << 20, 1 << 20)
    assert (settings.max_sessions, settings.session_idle_seconds, settings.page_bytes) == (
        10000,
        1800,
        262144,
    )


SOURCES: list[tuple[str, str, str, Any, Any, Any]] = [
    ("transport", "TRANSPORT", "transport", "sse", "http", "stdio"),
    ("host", "HOST", "host", "127.0.0.2", "127.0.0.3", "localhost"),
    ("port", "PORT", "port", 1, 2, 3),
    ("dataDir", "DATA_DIR", "data_dir", "/file", "/variable", "/flag"),
    ("listing", "LISTING", "listing", "full", "search", "dynamic"),
]


@pytest.mark.parametrize(("key", "part", "field", "file", "variable", "flag"), SOURCES)
def test_flags_win_over_the_environment_and_that_over_the_file(
    sandbox: ConfigSandbox, key: str, part: str, field: str, file: Any, variable: Any, flag: Any
) -> None:
    kind = type(getattr(Settings(data_dir=Path()), field))
    sandbox.write({"proxySettings": {key: file}})
    assert getattr(sandbox.load(), field) == kind(file)
    environ = {f"MCPPROXY_{part}": str(variable)}
    assert getattr(sandbox.load(**environ), field) == kind(variable)
    flags = msgspec.structs.replace(Flags(), **{field: kind(flag)})
    assert getattr(sandbox.load(flags, **environ), field) == kind(flag)


@pytest.mark.parametrize("port", [65536, "${NO}"])
def test_a_value_that_cannot_be_used_is_a_warning_where_it_is_overridden(
    sandbox: ConfigSandbox, port: Any
) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}, "proxySettings": {"port": port}})
    assert "proxySettings.port" in sandbox.refusal()
    settings = sandbox.load(Flags(port=9), MCPPROXY_PORT="x")
    assert settings.port == 9
    variable, file = settings.warnings
    assert variable.startswith("MCPPROXY_PORT is 'x'")
    assert file.startswith("proxySettings.port in")
    assert all("overridden" in warning for warning in settings.warnings)


VARIABLES: list[tuple[str, str, str, Any]] = [
    ("TRANSPORT", "transport", "http", "http"),
    ("HOST", "host", "::1", "::1"),
    ("PORT", "port", "9", 9),
    ("DATA_DIR", "data_dir", "/data", Path("/data")),
    ("TOOL_NAME_LIMIT", "tool_name_limit", "40", 40),
    ("LOG_LEVEL", "log_level", "debug", "DEBUG"),
    ("LOG_FILE", "log_file", "/log", Path("/log")),
    ("LOG_FORMAT", "log_format", "JSON", "json"),
    ("RESET_DATA", "reset_data", "true", True),
    ("LIST_CHANGED_EXEC", "list_changed_exec", "notify-send changed", "notify-send changed"),
    ("LISTING", "listing", "Search", "search"),
    ("LISTING_BUDGET_TOKENS", "listing_budget_tokens", "500", 500),
    ("DIALECT", "dialect", "OpenAI", "openai"),
    ("TOP_K", "top_k", "7", 7),
    ("TOOLS_LIMIT", "tools_limit", "20", 20),
    ("EMBEDDER", "embedder", "semantic", "SEMANTIC"),
    ("HF_MODEL", "hf_model", "models/mine", "models/mine"),
    ("OPENAI_BASE_URL", "openai_base_url", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"),
    ("OPENAI_MODEL", "openai_model", "nomic-embed-text", "nomic-embed-text"),
    ("OPENAI_API_KEY", "openai_api_key", "sk-1", "sk-1"),
    ("LEDGER_WINDOW", "ledger_window_seconds", "3600", 3600),
    ("DOUBT_WINDOW", "doubt_window_seconds", "90000", 90_000),
    ("REJOIN", "rejoin_seconds", "0.5", 0.5),
    ("LIST_DELIVERY_TOOLS", "list_delivery_tools", "false", False),
    ("TRANSACTION_TIMEOUT", "transaction_timeout_seconds", "60", 60),
    ("CHUNK_ABOVE_BYTES", "chunk_above_bytes", "2048", 2048),
]


@pytest.mark.parametrize(("part", "field", "text", "value"), VARIABLES)
def test_a_variable_makes_its_setting_in_both_spellings(
    sandbox: ConfigSandbox, part: str, field: str, text: str, value: Any
) -> None:
    for prefix in ("MCPPROXY_", "HEADGATE_"):
        assert getattr(sandbox.load(**{prefix + part: text}), field) == value
    default = getattr(sandbox.load(), field)
    assert getattr(sandbox.load(**{f"HEADGATE_{part}": "", f"MCPPROXY_{part}": ""}), field) == default


def test_the_newer_spelling_wins_when_both_are_set(sandbox: ConfigSandbox) -> None:
    assert sandbox.load(MCPPROXY_PORT="1", HEADGATE_PORT="2").port == 2


def test_the_third_spelling_of_the_log_level_is_the_weakest(sandbox: ConfigSandbox) -> None:
    assert sandbox.load(MCP_PROXY_LOG_LEVEL="ERROR").log_level == "ERROR"
    assert sandbox.load(MCP_PROXY_LOG_LEVEL="ERROR", MCPPROXY_LOG_LEVEL="DEBUG").log_level == "DEBUG"


def test_the_spelling_of_every_other_program_is_the_weakest(sandbox: ConfigSandbox) -> None:
    common = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "theirs"}
    settings = sandbox.load(**common)
    assert (settings.openai_base_url, settings.openai_api_key) == ("http://127.0.0.1:9/v1", "theirs")
    for prefix in ("MCPPROXY_", "HEADGATE_"):
        ours = {f"{prefix}OPENAI_BASE_URL": "http://localhost/v1", f"{prefix}OPENAI_API_KEY": "ours"}
        settings = sandbox.load(**common, **ours)
        assert (settings.openai_base_url, settings.openai_api_key) == ("http://localhost/v1", "ours")


def test_the_spelling_of_every_other_program_wins_over_the_file(sandbox: ConfigSandbox) -> None:
    sandbox.write({"proxySettings": {"openaiBaseUrl": "http://localhost/v1", "openaiApiKey": "${KEY:-file}"}})
    assert sandbox.load().openai_api_key == "file"
    settings = sandbox.load(OPENAI_BASE_URL="http://127.0.0.1:9/v1", OPENAI_API_KEY="theirs")
    assert (settings.openai_base_url, settings.openai_api_key) == ("http://127.0.0.1:9/v1", "theirs")


@pytest.mark.parametrize(("word", "listing"), [("CALL_TOOL", "search"), ("dynamic", "dynamic")])
@pytest.mark.parametrize("prefix", ["MCPPROXY_", "HEADGATE_"])
def test_the_routing_type_is_an_older_word_for_the_listing(
    sandbox: ConfigSandbox, prefix: str, word: str, listing: str
) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}, "proxySettings": {"listing": "full"}})
    settings = sandbox.load(**{f"{prefix}ROUTING_TYPE": word})
    assert (settings.listing, settings.warnings) == (listing, ())


def test_whatever_names_the_listing_itself_wins_over_the_routing_type(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    routing = {"HEADGATE_ROUTING_TYPE": "DYNAMIC"}
    for variable in ("MCPPROXY_LISTING", "HEADGATE_LISTING"):
        settings = sandbox.load(**routing, **{variable: "full"})
        told = f"HEADGATE_ROUTING_TYPE has no effect: {variable} overrides it with another value"
        assert (settings.listing, settings.warnings) == ("full", (told,))
    assert sandbox.load(Flags(listing="search"), **routing).listing == "search"
    assert sandbox.load(**routing, HEADGATE_LISTING="").listing == "dynamic"


def test_a_routing_type_that_there_is_not_names_those_that_there_are(sandbox: ConfigSandbox) -> None:
    said = sandbox.refusal(MCPPROXY_ROUTING_TYPE="PROMPT")
    assert "MCPPROXY_ROUTING_TYPE is 'PROMPT', allowed is DYNAMIC or CALL_TOOL" in said


def test_a_routing_type_that_there_is_not_does_no_harm_where_it_is_overridden(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    settings = sandbox.load(MCPPROXY_ROUTING_TYPE="PROMPT", HEADGATE_LISTING="search")
    assert settings.listing == "search"
    (warning,) = settings.warnings
    assert "MCPPROXY_ROUTING_TYPE is 'PROMPT'" in warning
    assert "overridden" in warning


RANGES: list[tuple[str, str, float, float]] = [
    ("topK", "top_k", 1, 50),
    ("toolsLimit", "tools_limit", 1, 100),
    ("toolNameLimit", "tool_name_limit", 10, 200),
    ("port", "port", 0, 65535),
    ("maxBodyBytes", "max_body_bytes", 1024, 1 << 30),
    ("maxHeaderBytes", "max_header_bytes", 1024, 1 << 20),
    ("maxHeaders", "max_headers", 10, 1000),
    ("headerTimeoutSeconds", "header_timeout_seconds", 0.1, 300),
    ("bodyTimeoutSeconds", "body_timeout_seconds", 0.1, 3600),
    ("maxUpstreamMessageBytes", "max_upstream_message_bytes", 1 << 16, 1 << 31),
    ("spoolAboveBytes", "spool_above_bytes", 4096, 1 << 31),
    ("maxSessions", "max_sessions", 1, 1_000_000),
    ("sessionIdleSeconds", "session_idle_seconds", 0.1, 604_800),
    ("pageBytes", "page_bytes", 4096, 1_000_000),
    ("ledgerWindow", "ledger_window_seconds", 60, 7_776_000),
    ("rejoin", "rejoin_seconds", 0, 900),
    ("transactionTimeout", "transaction_timeout_seconds", 1, 86_400),
    ("chunkAboveBytes", "chunk_above_bytes", 1024, 1 << 31),
]


@pytest.mark.parametrize(("key", "field", "least", "most"), RANGES)
def test_a_number_is_accepted_at_both_limits_and_refused_beyond(
    sandbox: ConfigSandbox, key: str, field: str, least: float, most: float
) -> None:
    for value in (least, most):
        assert getattr(sandbox.load_settings(**{key: value}), field) == value
    for value in (least - 1 if least >= 1 else -0.1, most + 1):
        sandbox.write({"proxySettings": {key: value}})
        said = sandbox.refusal()
        assert f"proxySettings.{key} in {sandbox.cwd / 'headgate.json'} is {value}" in said
        assert f"from {least} to {most}" in said


@pytest.mark.parametrize(
    ("variable", "good", "bad"),
    [
        ("PORT", ["0", "65535"], ["-1", "65536", "http", "1.5"]),
        ("TOOL_NAME_LIMIT", ["10", "200"], ["9", "201", "x"]),
        ("TOP_K", ["1", "50"], ["0", "51", "x"]),
        ("TOOLS_LIMIT", ["1", "100"], ["0", "101", "x"]),
        ("TRUNCATE_OUTPUT_LEN", ["0", "1000000"], ["-1", "x"]),
        ("MAX_RESPONSE_SIZE", ["1", "100000000"], ["0", "100000001", "8k"]),
        ("MAX_RESPONSE_TOKENS", ["1", "100000000"], ["0", "2.5"]),
        ("ROUTING_TYPE", ["DYNAMIC", "call_tool"], ["SEARCH"]),
        ("EMBEDDER", ["BM25", "HF", "openai", "SEMANTIC"], ["WORD2VEC"]),
        ("LISTING", ["auto", "full", "Slim", "search", "DYNAMIC", "budget"], ["everything", "sse", "1"]),
        ("LISTING_BUDGET_TOKENS", ["500", "1000000"], ["499", "1000001", "-3000", "3k", "3000.5"]),
        ("DIALECT", ["auto", "plain", "GEMINI", "openai"], ["strict", "claude"]),
        ("TRANSPORT", ["stdio", "http", "streamable-http", "sse", "SSE"], ["websocket"]),
        (
            "HOST",
            ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"],
            ["0.0.0.0", "::", "10.0.0.1", "box"],
        ),
        ("LOG_LEVEL", ["DEBUG", "INFO", "WARNING", "ERROR", "info"], ["LOUD"]),
        ("LOG_FORMAT", ["pretty", "json"], ["xml"]),
        ("RESET_DATA", ["true", "false", "1", "0", "True"], ["perhaps"]),
        ("DATA_DIR", ["/x", "x", "~"], ["a\nb"]),
        ("LOG_FILE", ["/x"], ["a\nb"]),
        ("LIST_CHANGED_EXEC", ["x"], ["a\nb", "say 'hello"]),
        ("LEDGER_WINDOW", ["60", "7776000"], ["59", "7776001", "1d"]),
        ("DOUBT_WINDOW", ["86400", "31536000"], ["59", "31536001"]),
        ("LIST_DELIVERY_TOOLS", ["true", "0"], ["perhaps"]),
    ],
)
def test_the_range_of_every_variable_is_enforced(
    sandbox: ConfigSandbox, variable: str, good: list[str], bad: list[str]
) -> None:
    for prefix in ("MCPPROXY_", "HEADGATE_"):
        for value in good:
            sandbox.load(**{prefix + variable: value})
        for value in bad:
            said = sandbox.refusal(**{prefix + variable: value})
            assert f"{prefix}{variable} is" in said
            assert "\n" not in said


@pytest.mark.parametrize(
    "variable",
    [
        "HEADGATE_API_KEY=hunter2",
        "BMCIS_API_KEY=hunter2",
        "BMCIS_RATE_LIMIT_MINUTE=1",
    ],
)
def test_a_variable_of_a_later_version_is_a_warning_without_its_value(
    sandbox: ConfigSandbox, variable: str
) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    name, value = variable.split("=")
    (warning,) = sandbox.load(**{name: value}).warnings
    assert f"{name} has no effect in this version" in warning
    assert "hunter2" not in warning


def test_the_length_of_the_older_proxy_selects_the_head_and_the_tail(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load(MCPPROXY_TRUNCATE_OUTPUT_LEN="500")
    assert (settings.truncation, settings.max_response_size) == ("head_tail", 500)
    settings = sandbox.load(MCPPROXY_TRUNCATE_OUTPUT_LEN="500", HEADGATE_MAX_RESPONSE_SIZE="9000")
    assert settings.max_response_size == 500
    settings = sandbox.load(MCPPROXY_TRUNCATE_OUTPUT_LEN="0")
    assert (settings.truncation, settings.max_response_size) == ("cache", 8000)


def test_the_time_that_results_are_kept_is_spelled_as_people_do(sandbox: ConfigSandbox) -> None:
    for key in ("cacheTTLSeconds", "cache_ttl_seconds"):
        sandbox.write({"proxySettings": {key: 60}})
        assert sandbox.load().cache_ttl_seconds == 60


def test_the_defaults_of_delivery_are_those_of_the_documentation(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load()
    assert (settings.ledger_window_seconds, settings.doubt_window_seconds) == (86_400, 604_800)
    assert (settings.rejoin_seconds, settings.transaction_timeout_seconds) == (5, 300)
    assert (settings.list_delivery_tools, settings.chunk_above_bytes) == (None, 10_000_000)


@pytest.mark.parametrize(
    "key", ["ledgerWindow", "ledger_window", "ledgerWindowSeconds", "ledger_window_seconds"]
)
def test_a_time_of_delivery_may_have_its_unit_in_its_name(sandbox: ConfigSandbox, key: str) -> None:
    settings = sandbox.load_settings(**{key: 120})
    assert (settings.ledger_window_seconds, settings.warnings) == (120, ())


def test_one_time_in_two_spellings_is_refused(sandbox: ConfigSandbox) -> None:
    sandbox.write({"proxySettings": {"rejoin": 1, "rejoinSeconds": 1}})
    assert "both 'rejoin' and 'rejoinSeconds'" in sandbox.refusal()


def test_calls_in_doubt_are_kept_at_least_as_long_as_the_others(sandbox: ConfigSandbox) -> None:
    month = 30 * 86_400
    settings = sandbox.load_settings(ledgerWindow=month)
    assert (settings.doubt_window_seconds, settings.warnings) == (month, ())
    assert sandbox.load_settings(ledgerWindow=month, doubtWindow=month).doubt_window_seconds == month
    sandbox.write({"proxySettings": {"ledgerWindow": month, "doubtWindow": month - 1}})
    assert "doubtWindow is shorter than ledgerWindow" in sandbox.refusal()
    assert "doubtWindow is shorter than ledgerWindow" in sandbox.refusal(HEADGATE_DOUBT_WINDOW="60")


def test_a_notice_without_the_id_is_refused(sandbox: ConfigSandbox) -> None:
    sandbox.write({"proxySettings": {"truncationMessage": "cut"}})
    assert "{cache_id}" in sandbox.refusal()


def test_an_unknown_variable_of_ours_is_a_warning_with_the_nearest_known_one(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    assert sandbox.load(MCPPROXY_PROT="1", UNRELATED="x", MCPPROXY_ZZZZ="1").warnings == (
        "the variable 'MCPPROXY_PROT' is not known; did you mean MCPPROXY_PORT?",
        "the variable 'MCPPROXY_ZZZZ' is not known",
    )


def test_streamable_http_is_another_word_for_http(sandbox: ConfigSandbox) -> None:
    assert sandbox.load_settings(transport="streamable-http").transport == "http"
    assert sandbox.load(Flags(transport="streamable-http")).transport == "http"
    assert sandbox.load(MCPPROXY_TRANSPORT="streamable-http").transport == "http"


@pytest.mark.parametrize("word", get_args(Listing))
def test_every_listing_can_be_the_gateways_and_that_of_clients_by_their_name(
    sandbox: ConfigSandbox, word: str
) -> None:
    assert sandbox.load(Flags(listing=word)).listing == word
    settings = sandbox.load_settings(listing=word.upper(), clientListings={"cursor*": word.title()})
    assert (settings.listing, settings.client_listings) == (word, {"cursor*": word})
    assert settings.warnings == ()


def test_clients_are_given_a_listing_and_a_dialect_in_the_order_of_the_file(sandbox: ConfigSandbox) -> None:
    listings = {"zed": "full", "*": "slim", "cursor*": "budget"}
    dialects = {"gemini*": "gemini", "My Agent": "openai"}
    settings = sandbox.load_settings(clientListings=listings, clientDialects=dialects)
    assert list(settings.client_listings.items()) == list(listings.items())
    assert list(settings.client_dialects.items()) == list(dialects.items())


@pytest.mark.parametrize("spelling", ["clientListings", "client_listings"])
def test_settings_of_clients_have_both_spellings(sandbox: ConfigSandbox, spelling: str) -> None:
    settings = sandbox.load_settings(**{spelling: {"a": "full"}})
    assert (settings.client_listings, settings.warnings) == ({"a": "full"}, ())


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        (
            "clientListings",
            {"b": "full", "a": "all"},
            "auto, full, partitioned, slim, search, dynamic or budget",
        ),
        ("clientListings", {"a": None}, "auto, full, partitioned, slim, search, dynamic or budget"),
        (
            "clientListings",
            ["full"],
            "an object whose values are auto, full, partitioned, slim, search, dynamic, budget",
        ),
        ("clientDialects", {"a": "auto"}, "plain, gemini or openai"),
        ("clientDialects", "gemini", "an object whose values are plain, gemini, openai"),
        ("dialect", {"a": "gemini"}, "auto, plain, gemini or openai"),
        ("dialect", True, "auto, plain, gemini or openai"),
        ("listingBudgetTokens", 499, "an integer from 500 to 1000000"),
        ("listingBudgetTokens", 1e9, "an integer from 500 to 1000000"),
        ("listingBudgetTokens", "many", "an integer from 500 to 1000000"),
        ("listingBudgetTokens", [3000], "an integer from 500 to 1000000"),
    ],
)
def test_a_wrong_word_for_a_listing_or_a_dialect_says_what_is_allowed(
    sandbox: ConfigSandbox, key: str, value: Any, allowed: str
) -> None:
    sandbox.write({"proxySettings": {key: value}})
    said = sandbox.refusal()
    assert f"proxySettings.{key} in {sandbox.cwd / 'headgate.json'} is" in said
    assert f"allowed is {allowed}" in said
    # Of several values the wrong one is named.
    assert said.startswith("'a' of ") == (key.startswith("client") and isinstance(value, dict))


def test_words_of_clients_may_come_from_variables(sandbox: ConfigSandbox) -> None:
    sandbox.write(
        {
            "mcpServers": {"a": {"builtin": "example"}},
            "proxySettings": {"clientListings": {"a": "${MODE}"}, "listingBudgetTokens": "${TOKENS}"},
        }
    )
    settings = sandbox.load(MODE="Slim", TOKENS="700")
    assert (settings.client_listings, settings.listing_budget_tokens) == ({"a": "slim"}, 700)
    assert "MODE" in sandbox.refusal(TOKENS="700")


def test_an_unknown_listing_names_those_that_are_allowed(sandbox: ConfigSandbox) -> None:
    said = sandbox.refusal(Flags(listing="everything"))
    assert (
        "--listing is 'everything', allowed is auto, full, partitioned, slim, search, dynamic or budget"
        in said
    )


@pytest.mark.parametrize(("variable", "range_"), [("TOP_K", "1 to 50"), ("TOOLS_LIMIT", "1 to 100")])
def test_a_count_that_is_out_of_its_range_is_told_with_the_range(
    sandbox: ConfigSandbox, variable: str, range_: str
) -> None:
    for value in ("0", "101"):
        said = sandbox.refusal(**{f"MCPPROXY_{variable}": value})
        assert f"MCPPROXY_{variable} is '{value}', allowed is an integer from {range_}" in said


SECRET = "sk-hunter2"


@pytest.mark.parametrize("key", [[SECRET], {"key": SECRET}, f"${{NO_{SECRET}}}", f"{SECRET}\ud800"])
def test_a_key_that_cannot_be_used_is_never_repeated(sandbox: ConfigSandbox, key: object) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}, "proxySettings": {"openaiApiKey": key}})
    assert SECRET not in sandbox.refusal()


def test_a_key_under_a_name_that_is_misspelt_is_not_repeated(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}})
    (warning,) = sandbox.load(HEADGATE_OPENAI_APIKEY=SECRET).warnings
    assert warning.endswith("did you mean HEADGATE_OPENAI_API_KEY?")
    assert SECRET not in warning


def test_a_key_that_is_overridden_is_not_repeated_either(sandbox: ConfigSandbox) -> None:
    sandbox.write({"mcpServers": {"a": {"builtin": "example"}}, "proxySettings": {"openaiApiKey": [SECRET]}})
    settings = sandbox.load(OPENAI_API_KEY="other")
    assert settings.openai_api_key == "other"
    (warning,) = settings.warnings
    assert warning.startswith("proxySettings.openaiApiKey in")
    assert SECRET not in warning


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "gate.example.com", ""])
def test_an_address_that_others_can_reach_is_refused_with_what_to_do(
    sandbox: ConfigSandbox, host: str
) -> None:
    sandbox.write({"proxySettings": {"host": host}})
    said = sandbox.refusal()
    assert "without authentication" in said
    assert "127.0.0.1" in said
    assert "allowedHosts" in said
    assert "--host is" in sandbox.refusal(Flags(host=host))


def test_the_data_directory_of_the_predecessor_is_used_where_only_that_exists(sandbox: ConfigSandbox) -> None:
    assert sandbox.load().data_dir == sandbox.home / ".headgate"
    (sandbox.home / ".mcpproxy").mkdir()
    assert sandbox.load().data_dir == sandbox.home / ".mcpproxy"
    (sandbox.home / ".headgate").mkdir()
    assert sandbox.load().data_dir == sandbox.home / ".headgate"


def test_a_relative_path_belongs_to_where_it_was_written(sandbox: ConfigSandbox) -> None:
    path = sandbox.write({"proxySettings": {"dataDir": "data", "logFile": "~/gateway.log"}})
    moved = path.rename(sandbox.home / "moved.json")
    environ = {"HEADGATE_CONFIG": str(moved)}
    settings = sandbox.load(**environ)
    assert (settings.data_dir, settings.log_file) == (sandbox.home / "data", sandbox.home / "gateway.log")
    assert sandbox.load(HEADGATE_DATA_DIR="data", **environ).data_dir == sandbox.cwd / "data"
    assert sandbox.load(Flags(data_dir=Path("flag"))).data_dir == sandbox.cwd / "flag"


def test_hosts_and_origins_are_kept_in_lower_case(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load_settings(
        allowedHosts=["Gate.Example.com", "gate:8443", "[::1]:80"],
        allowed_origins=["https://App.example.com", "vscode-webview://x", "http://localhost:3000"],
    )
    assert settings.allowed_hosts == ("gate.example.com", "gate:8443", "[::1]:80")
    assert settings.allowed_origins == (
        "https://app.example.com",
        "vscode-webview://x",
        "http://localhost:3000",
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowedHosts", ["https://gate.example.com"]),
        ("allowedHosts", ["*"]),
        ("allowedHosts", [""]),
        ("allowedHosts", "gate.example.com"),
        ("allowedOrigins", ["app.example.com"]),
        ("allowedOrigins", ["https://app.example.com/"]),
        ("allowedOrigins", ["*"]),
        ("allowedOrigins", [1]),
        ("name", ""),
        ("name", "n" * 65),
        ("name", "a\nb"),
        ("prefix", "perhaps"),
        ("logFile", ""),
        ("logFile", 1),
        ("listChangedExec", ["a"]),
        ("transport", ["http"]),
        ("port", 1.5),
        ("port", 10**400),
        ("port", {}),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error_that_names_it(
    sandbox: ConfigSandbox, key: str, value: Any
) -> None:
    sandbox.write({"proxySettings": {key: value}})
    said = sandbox.refusal()
    assert f"proxySettings.{key} in" in said
    assert "allowed is" in said
    assert len(said) < 600


def test_a_file_cannot_ask_to_erase_the_data(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load_settings(resetData=True)
    assert settings.reset_data is False
    assert "'resetData'" in settings.warnings[0]


def test_null_and_an_empty_command_mean_not_set(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load_settings(logFile=None, port=None, listChangedExec=" ")
    assert (settings.log_file, settings.port, settings.list_changed_exec) == (None, 8000, None)


def test_without_a_home_the_working_directory_stands_for_it(sandbox: ConfigSandbox) -> None:
    assert sandbox.load(HOME="").data_dir == sandbox.cwd / ".headgate"


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"HEADGATE_PORT": "1", "MCPPROXY_PORT": "2"}, "MCPPROXY_PORT has no effect: HEADGATE_PORT"),
        (
            {"HEADGATE_LISTING": "slim", "MCPPROXY_ROUTING_TYPE": "DYNAMIC"},
            "MCPPROXY_ROUTING_TYPE has no effect",
        ),
        ({"HEADGATE_LOG_LEVEL": "INFO", "MCP_PROXY_LOG_LEVEL": "DEBUG"}, "MCP_PROXY_LOG_LEVEL has no effect"),
        (
            {"HEADGATE_TRUNCATE_OUTPUT_LEN": "100", "MCPPROXY_TRUNCATE_OUTPUT_LEN": "200"},
            "MCPPROXY_TRUNCATE_OUTPUT_LEN has no effect: HEADGATE_TRUNCATE_OUTPUT_LEN",
        ),
        (
            {"HEADGATE_TRUNCATE_OUTPUT_LEN": "100", "HEADGATE_MAX_RESPONSE_SIZE": "200"},
            "HEADGATE_MAX_RESPONSE_SIZE has no effect: HEADGATE_TRUNCATE_OUTPUT_LEN",
        ),
        ({"HEADGATE_HOST": "::1"}, "HEADGATE_HOST has no effect: --host"),
        ({"HEADGATE_PORT": "1", "MCPPROXY_PORT": "99999999"}, "it has no effect, because it is overridden"),
        (
            {"HEADGATE_CONFIG": "headgate.json", "MCPPROXY_CONFIG_PATH": "b.json"},
            "MCPPROXY_CONFIG_PATH has no effect",
        ),
    ],
)
def test_a_variable_that_is_overridden_is_told(
    sandbox: ConfigSandbox, environ: dict[str, str], told: str
) -> None:
    sandbox.write({"mcpServers": {"one": {"builtin": "example"}}})
    (warning,) = sandbox.load(Flags(host="127.0.0.1"), **environ).warnings
    assert told in warning


@pytest.mark.parametrize(
    "environ",
    [
        {"HEADGATE_TRANSPORT": "http", "MCPPROXY_TRANSPORT": "streamable-http"},
        {"HEADGATE_HOST": "127.0.0.1"},
        {"HEADGATE_OPENAI_API_KEY": "a", "OPENAI_API_KEY": "b"},
        {"HEADGATE_PORT": "1", "MCPPROXY_PORT": ""},
        {"HEADGATE_CONFIG": "headgate.json", "MCPPROXY_CONFIG_PATH": "./headgate.json"},
    ],
)
def test_a_variable_that_says_the_same_is_not_told(sandbox: ConfigSandbox, environ: dict[str, str]) -> None:
    sandbox.write({"mcpServers": {"one": {"builtin": "example"}}})
    assert sandbox.load(Flags(host="127.0.0.1"), **environ).warnings == ()
