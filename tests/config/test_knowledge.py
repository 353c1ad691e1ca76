"""The object `knowledge`: settings inside of an object, from the file, from variables and from flags."""

from typing import Any

import pytest

from headgate.config.loader import load
from headgate.config.settings import BoostSettings, Flags, KnowledgeSettings, Settings, WeightSettings
from tests.config.sandbox import ConfigSandbox

STORE = "postgresql://team:hunter2@db.example.com/knowledge"


def knowledge(sandbox: ConfigSandbox, **settings: Any) -> KnowledgeSettings:
    loaded = sandbox.load_settings(knowledge=settings)
    assert loaded.warnings == ()
    return loaded.knowledge


def refusal(sandbox: ConfigSandbox, **settings: Any) -> str:
    sandbox.write({"proxySettings": {"knowledge": settings}})
    return sandbox.refusal()


def test_the_defaults_are_those_of_the_documentation(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load().knowledge
    assert settings == KnowledgeSettings() == knowledge(sandbox)
    assert (settings.store, settings.replica, settings.embedder) == (None, None, None)
    assert (settings.k, settings.weights) == (60, WeightSettings(vector=0.5, bm25=0.5))
    assert settings.boosts == BoostSettings(vendor=0.15, doc_type=0.1, recency=0.05, entity=0.1, topic=0.08)
    assert (settings.boost, settings.token_budget) == (False, 100_000)
    assert (settings.cache_entries, settings.cache_ttl_seconds) == (1000, 3600)
    assert (settings.pool_min, settings.pool_max) == (2, 10)


def test_what_an_object_does_not_say_stays_as_it_is(sandbox: ConfigSandbox) -> None:
    settings = knowledge(sandbox, k=10, weights={"vector": 3, "bm25": 1}, boosts={"doc_type": 0.5})
    assert settings == KnowledgeSettings(
        k=10, weights=WeightSettings(vector=3, bm25=1), boosts=BoostSettings(doc_type=0.5)
    )


@pytest.mark.parametrize("key", ["cacheTtl", "cacheTTL", "cache_ttl", "cacheTTLSeconds", "cache_ttl_seconds"])
def test_the_time_of_the_cache_is_spelled_as_people_do(sandbox: ConfigSandbox, key: str) -> None:
    assert knowledge(sandbox, **{key: 60}).cache_ttl_seconds == 60


def test_a_flag_wins_over_a_variable_and_that_over_the_file_inside_of_the_object_too(
    sandbox: ConfigSandbox,
) -> None:
    sandbox.write({"proxySettings": {"knowledge": {"store": "postgres://file/", "k": 7}}})
    assert sandbox.load().knowledge == KnowledgeSettings(store="postgres://file/", k=7)
    variables = {"MCPPROXY_KNOWLEDGE_STORE": "postgresql://variable/"}
    assert sandbox.load(**variables).knowledge == KnowledgeSettings(store="postgresql://variable/", k=7)
    settings = sandbox.load(Flags(store=STORE), **variables)
    assert settings.knowledge == KnowledgeSettings(store=STORE, k=7)


@pytest.mark.parametrize("prefix", ["HEADGATE_", "MCPPROXY_"])
def test_each_variable_makes_its_setting(sandbox: ConfigSandbox, prefix: str) -> None:
    variables = {"STORE": STORE, "REPLICA": "postgres://r/", "EMBEDDER": "hf", "TOKEN_BUDGET": "0"}
    settings = sandbox.load(**{f"{prefix}KNOWLEDGE_{part}": value for part, value in variables.items()})
    assert settings.knowledge == KnowledgeSettings(
        store=STORE, replica="postgres://r/", embedder="HF", token_budget=0
    )


def test_the_file_may_take_a_password_from_a_variable(sandbox: ConfigSandbox) -> None:
    sandbox.write({"proxySettings": {"knowledge": {"store": "postgresql://team:${SECRET}@db/x"}}})
    assert sandbox.load(SECRET="hunter2").knowledge.store == "postgresql://team:hunter2@db/x"
    said = sandbox.refusal()
    assert "proxySettings.knowledge.store" in said
    assert "SECRET" in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"k": 0}, "knowledge.k in {file} is 0, allowed is an integer from 1 to 1000"),
        ({"k": 1001}, "knowledge.k in {file} is 1001, allowed is an integer from 1 to 1000"),
        ({"weights": {"vector": -1}}, "knowledge.weights.vector in {file} is -1, allowed is a number"),
        ({"weights": [1, 2]}, "knowledge.weights in {file} is a list, allowed is an object with vector and"),
        ({"weights": {"vector": 0, "bm25": 0}}, "both of knowledge.weights are 0"),
        (
            {"boosts": {"vendor": 2}},
            "knowledge.boosts.vendor in {file} is 2, allowed is a number from 0 to 1",
        ),
        ({"boost": "perhaps"}, "knowledge.boost in {file} is 'perhaps', allowed is true or false"),
        ({"embedder": "WORD2VEC"}, "allowed is BM25, SEMANTIC, HF or OPENAI"),
        ({"tokenBudget": -1}, "allowed is an integer from 0 to"),
        ({"poolMin": 5, "poolMax": 4}, "poolMin is 5, which is more than poolMax, 4"),
        ({"pool_min": 0}, "knowledge.poolMin in {file} is 0"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_with_the_key(
    sandbox: ConfigSandbox, settings: dict[str, Any], words: str
) -> None:
    said = refusal(sandbox, **settings)
    assert words.format(file=sandbox.cwd / "headgate.json") in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("mysql://team:hunter2@db/x", "an address of 'mysql'"),
        ("postgresql+psycopg://team:hunter2@db/x", "an address of 'postgresql+psycopg'"),
        ("hunter2", "not usable"),
        ("", "not usable"),
        ("postgresql://", "not usable"),
        ("postgresql://team:hunter2@db/x\n", "not usable"),
        ("postgresql://team:hunter2 @db/x", "not usable"),
        (["hunter2"], "of another kind"),
    ],
)
@pytest.mark.parametrize("key", ["store", "replica"])
def test_an_address_that_is_none_is_refused_without_its_password(
    sandbox: ConfigSandbox, key: str, address: object, words: str
) -> None:
    said = refusal(sandbox, **{key: address})
    assert f"proxySettings.knowledge.{key} in {sandbox.cwd / 'headgate.json'} is {words}" in said
    assert "hunter2" not in said


def test_a_flag_that_is_no_address_is_named(sandbox: ConfigSandbox) -> None:
    assert sandbox.refusal(Flags(store="redis://x")).startswith(
        "--store is an address of 'redis', allowed is"
    )


def test_a_wrong_address_that_is_overridden_is_a_warning_without_its_password(sandbox: ConfigSandbox) -> None:
    sandbox.write(
        {
            "mcpServers": {"a": {"builtin": "knowledge"}},
            "proxySettings": {"knowledge": {"store": "mysql://a:hunter2@b"}},
        }
    )
    settings = sandbox.load(Flags(store=STORE))
    assert settings.knowledge.store == STORE
    (warning,) = settings.warnings
    assert "overridden" in warning
    assert "hunter2" not in warning


def test_one_bound_of_the_pool_moves_the_other(sandbox: ConfigSandbox) -> None:
    settings = knowledge(sandbox, poolMax=1)
    assert (settings.pool_min, settings.pool_max) == (1, 1)
    settings = knowledge(sandbox, poolMin=20)
    assert (settings.pool_min, settings.pool_max) == (20, 20)


def test_a_replica_of_nothing_is_a_warning(sandbox: ConfigSandbox) -> None:
    (warning,) = sandbox.load_settings(knowledge={"replica": "postgresql://r/"}).warnings
    assert warning.startswith("knowledge.replica has no effect without knowledge.store")


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(sandbox: ConfigSandbox) -> None:
    settings = sandbox.load_settings(knowledge={"weigths": {}, "boosts": {"vendors": 1}})
    assert settings.knowledge == KnowledgeSettings()
    first, second = settings.warnings
    assert "'weigths' in proxySettings.knowledge in" in first
    assert "did you mean 'weights'?" in first
    assert "'vendors' in proxySettings.knowledge.boosts in" in second
    assert "did you mean 'vendor'?" in second


def test_one_line_turns_the_built_in_server_on(sandbox: ConfigSandbox) -> None:
    spec, warnings = sandbox.load_server({"builtin": "knowledge"})
    assert spec is not None
    assert (spec.builtin, spec.enabled, warnings) == ("knowledge", True, ())


@pytest.mark.parametrize(("told", "builtin"), [("knowledge", "knowledge"), ("${WHICH}", "example")])
def test_a_built_in_server_whose_variable_is_missing_keeps_its_name(
    sandbox: ConfigSandbox, told: str, builtin: str
) -> None:
    spec, warnings = sandbox.load_server({"builtin": told, "timeout": "${SECONDS_NOT_SET}"})
    assert spec is not None
    assert (spec.builtin, spec.enabled) == (builtin, False)
    assert any("SECONDS_NOT_SET" in warning for warning in warnings)


def test_whoever_wants_no_servers_hears_nothing_of_them(sandbox: ConfigSandbox) -> None:
    def alone() -> Settings:
        return load(Flags(), {"HOME": str(sandbox.home)}, sandbox.cwd, with_servers=False)

    assert (alone().servers, alone().warnings) == ((), ())
    sandbox.write(
        {"mcpServers": {"a": {"url": "${NOT_SET}"}, "b": 5}, "proxySettings": {"knowledge": {"k": 7}}}
    )
    settings = alone()
    assert (settings.servers, settings.left_out, settings.warnings) == ((), {}, ())
    assert settings.knowledge.k == 7
