"""The secrets in the entry of a server, for their literal removal from messages about it."""

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from headgate.domain.redaction import REDACTED, names_secret, redact_secrets
from headgate.domain.secret_detection import is_absent, is_path, is_random
from headgate.domain.server_spec import ServerSpec

# A shorter value is part of too many words.
_SHORTEST = 6


def known_secrets(spec: ServerSpec) -> tuple[str, ...]:
    """The secret values of `env`, `headers`, `args` and URLs, in each spelling, the longest first."""
    found = {
        spelling
        for value in _values(spec)
        if len(value) >= _SHORTEST and not is_absent(value)
        for spelling in (value, quote(value, safe=""), msgspec.json.encode(value).decode()[1:-1])
    }
    return tuple(sorted(found, key=len, reverse=True))


def redact_values(text: str, values: Iterable[str]) -> str:
    """The text without these values, wherever they occur."""
    for value in values:
        if value in text:
            text = text.replace(value, REDACTED)
    return text


def _values(spec: ServerSpec) -> Iterator[str]:
    for name, value in spec.env.items():
        if names_secret(name) or _is_secret(value):
            yield value
    for name, value in spec.headers.items():
        if names_secret(name) or name.casefold() in ("authorization", "cookie") or _is_secret(value):
            yield value
            # Without its scheme.
            yield value.partition(" ")[2]
    yield from _of_arguments(spec.args)
    for url in (spec.url, spec.proxy, *spec.args, *spec.env.values()):
        yield from _of_url(url)
    yield spec.tls.client_key_password


def _of_arguments(arguments: tuple[str, ...]) -> Iterator[str]:
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, _, value = argument.partition("=")
        if value and (names_secret(name.lstrip("-")) or _is_secret(value)):
            yield value
        quoted = msgspec.json.encode(argument).decode()
        if before.startswith("-") and redact_secrets(f"{before} {quoted}") == f"{before} {REDACTED}":
            yield argument


def _of_url(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
    for name, value in parse_qsl(parts.query):
        if names_secret(name) or is_random(value):
            yield value


def _is_secret(value: str) -> bool:
    if is_path(value) or "://" in value:
        return False
    return redact_secrets(value) != value or (
        is_random(value) and " " not in value and any(map(str.isdigit, value))
    )
