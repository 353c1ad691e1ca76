"""Secrets as programs print them are removed, innocent texts stay, and time grows with the length."""

import lzma
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.domain.redaction import REDACTED, redact, redact_json, redact_secrets
from tests.domain.secret_samples import PEM, SECRETS

DATA = Path(__file__).parent.parent / "data"
INNOCENT = (DATA / "innocent.txt").read_text().splitlines()


@pytest.mark.parametrize(("text", "secrets"), SECRETS)
def test_a_secret_is_removed_and_the_text_around_it_stays(text: str, secrets: tuple[str, ...]) -> None:
    before, after = "server failed (attempt 3): ", "\nnext line: exit code 1"
    redacted = redact_secrets(f"{before}{text}{after}")
    assert not [secret for secret in secrets if secret in redacted]
    assert REDACTED in redacted
    assert redacted.startswith(before)
    assert redacted.endswith(after)


@pytest.mark.parametrize(("text", "secrets"), SECRETS)
def test_a_secret_is_removed_from_what_json_and_python_quote(text: str, secrets: tuple[str, ...]) -> None:
    for quoted in (msgspec.json.encode({"line": text}).decode(), repr(text)):
        assert not [secret for secret in secrets if secret in redact_secrets(quoted)], quoted
    document = msgspec.json.encode({"error": {"message": text}})
    assert not [secret for secret in secrets if secret in redact_json(document)]


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_stays_as_it_is(text: str) -> None:
    assert redact_secrets(text) == text
    assert redact_secrets(f"2026-11-18 12:00:00 [error] {text}") == f"2026-11-18 12:00:00 [error] {text}"


def test_there_are_as_many_samples_as_the_decision_says() -> None:
    assert len(set(SECRETS)) >= 100
    assert len(set(INNOCENT)) >= 300


def test_texts_of_real_servers_stay_as_they_are() -> None:
    """Names, descriptions, schemas and answers of 98 servers; a few of them show an example of a token."""
    texts = set(_texts())
    assert len(texts) > 10_000
    assert sum(redact_secrets(text) != text for text in texts) <= 10


def _texts() -> Iterator[str]:
    for name in ("catalogs.jsonl.xz", "conversations.jsonl.xz"):
        with lzma.open(DATA / name) as lines:
            for line in lines:
                yield from _strings(msgspec.json.decode(line))


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for member in value.values():
                yield from _strings(member)
        case list():
            for member in value:
                yield from _strings(member)


_PIECES = st.sampled_from(
    [
        *(text for text, _ in SECRETS),
        *INNOCENT,
        *(
            "token",
            "password",
            "key",
            "Authorization",
            "Cookie",
            "--token",
            "bearer",
            "basic",
            "://",
            "@",
            "eyJ",
            "sk-",
        ),
        *(
            "=",
            ":",
            " ",
            "\n",
            '"',
            "'",
            "\\",
            "\\n",
            ",",
            ";",
            "[",
            "]",
            "{",
            "}",
            "-",
            "_",
            "a",
            "1",
            REDACTED,
        ),
        *("-----BEGIN PRIVATE KEY-----", PEM, "${", "<", ">", "?", "&"),
    ]
)


@example("password: SecretStrUnexpected token: identifiernpx -y some-mcp --token abc123def --verbose")
@given(st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=12).map("".join))
@settings(max_examples=600, deadline=None)
def test_a_redacted_text_is_not_changed_again_and_stays_short(text: str) -> None:
    redacted = redact(text)
    assert redact(redacted) == redacted
    assert len(redacted) <= 4 * len(text) + 16


# The beginnings of all patterns, repeated.
HOSTILE = [
    *(
        "password=",
        'token:"',
        "token:'\\",
        "token:${a",
        "token:{{",
        "token=a(",
        'key=\\"',
        "key ",
        "secret",
        "apikey: ",
    ),
    *("://", "://a:", "://a:b", "?key=", "&", ":thin:", "a:b@", "a:"),
    *(
        "bearer ",
        "basic ",
        "basic AAAAAAAA",
        "token: bearer ",
        "authorization: ",
        "authorization:x=1,",
        "Authorization: a ",
    ),
    *("cookie:", "cookie: a=", "cookie: a=b; ", "sess", "__host-a"),
    *("--token ", "--", "-", "--a", "curl ", "curl -u", "mysql ", "mysql -p", "redis-cli "),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nAAAA1", "AAAA" * 16 + "\n"),
    *("eyJ", "eyJaaaaaaaaaa.", "sk-", "sk-a", "ghp_", "M" * 24 + ".", "12345678:", "1//0"),
    *("a", "A1", "\\", '"', "'", "\n", "[", "/home/", "C:\\Users\\"),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_length_of_a_hostile_text(piece: str) -> None:
    # Eight times the text takes 64 times as long with a pattern that starts again from each place.
    short, long = (_cpu_seconds(piece * (size // len(piece))) for size in (32 * 1024, 256 * 1024))
    assert long <= max(24 * short, 0.25)


def _cpu_seconds(text: str) -> float:
    start = time.process_time()
    redact(text)
    return time.process_time() - start
