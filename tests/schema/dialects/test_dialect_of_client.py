"""Which client gets which dialect."""

import pytest

from headgate.catalog.tool_dialects import Dialect, dialect_of


@pytest.mark.parametrize(
    "name", ["antigravity-client", "gemini-cli-mcp-client-gate", "gemini-cli-mcp-client-"]
)
def test_a_client_that_is_known_to_choke_gets_the_gemini_dialect(name: str) -> None:
    assert dialect_of(name) is Dialect.GEMINI


@pytest.mark.parametrize(
    "name",
    [
        "gemini-cli-mcp-client",
        "google-adk",
        "codex-mcp-client",
        "openai-mcp",
        "claude-code",
        "cursor-vscode",
        "mcp",
        "Antigravity-Client",
        "",
        "é" * 10_000,
    ],
)
def test_every_other_client_gets_schemas_as_they_are(name: str) -> None:
    assert dialect_of(name) is Dialect.PLAIN


def test_the_names_in_a_configuration() -> None:
    assert [Dialect("plain"), Dialect("gemini"), Dialect("openai")] == list(Dialect)
