"""Which of the gateway's own variables a child process inherits."""

import re
from collections.abc import Mapping

from headgate.domain.redaction import redact_secrets
from headgate.domain.wildcards import matches_any

# Variables that every program needs.
_PLAIN = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
_CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
# Programs read either case, and some of them only one.
_PROXIES = tuple(
    name
    for upper in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    for name in (upper, upper.lower())
)
_ALWAYS = frozenset((*_PLAIN, *_CERTIFICATES, *_PROXIES))
# Where npm, uv and pip find packages; npm reads its prefix in any case.
_INSTALLERS = re.compile(r"(?i:npm_config_).+|(?:UV|PIP)_.+", re.DOTALL)

# They make a program load or run code of their author's choice.
_LOADERS = re.compile(
    r"""
    (?: LD | DYLD )_.*
    | NODE_(?: OPTIONS | PATH | REPL_EXTERNAL_MODULE )
    | PYTHON(?: PATH | HOME | STARTUP | INSPECT | USERBASE | BREAKPOINT | WARNINGS | PLATLIBDIR | EXECUTABLE )
    | PERL5?(?: LIB | OPT | DB ) | RUBY(?: LIB | OPT | SHELL ) | GEM_(?: HOME | PATH ) | PHP_INI_SCAN_DIR
    | _?JAVA_(?: TOOL_ )?OPTIONS | JDK_JAVA_OPTIONS | CLASSPATH
    | BASH_ENV | ENV | BASH_FUNC_.* | SHELLOPTS | BASHOPTS | PS4 | PROMPT_COMMAND
    | GCONV_PATH | GLIBC_TUNABLES | LOCPATH | OPENSSL_CONF | OPENSSL_(?: ENGINES | MODULES )
    | GIT_(?: SSH | SSH_COMMAND | EXEC_PATH | CONFIG.* | PROXY_COMMAND | ASKPASS ) | DOTNET_STARTUP_HOOKS
    | (?i: npm_config_ (?: node[_-]options | script[_-]shell | shell | git | init[_-]module ) )
    """,
    re.VERBOSE | re.DOTALL,
)

_SECRET_NAME = re.compile(
    r"auth(?!or) | token | pass(?:word|wd|phrase) | secret | credential | username | api_?key"
    r" | (?:^|[_.:-])(?:key|otp|pat|pwd)$",
    re.IGNORECASE | re.VERBOSE,
)
_SECRET_VALUE = re.compile(
    r"""
    # A user before the host, with or without a password and a scheme; `host:8080/@scope` has neither.
    // [^/\s]* @ | [^/\s:@]+ : (?! //) (?! \d+ (?:/|$) ) [^\s@]+ @
    # A signature or a token in a query.
    | [?&;] [^\s=&;]* (?: token | key | sig | signature | secret | password | auth ) [^\s=&;]* =
    | -----BEGIN [^\n]* PRIVATE\ KEY
    """,
    re.IGNORECASE | re.VERBOSE,
)


def inherited_environment(environ: Mapping[str, str], named: tuple[str, ...]) -> dict[str, str]:
    """The environment of a child process: variables for the network, and those that the operator named."""
    return {
        name: value
        for name, value in environ.items()
        if _is_named(name, named) or name in _ALWAYS or _is_harmless(name, value)
    }


def withheld_variables(environ: Mapping[str, str], named: tuple[str, ...]) -> list[str]:
    """The variables for npm, uv and pip that hold a credential or load code, and are not configured."""
    return sorted(
        name
        for name, value in environ.items()
        if _INSTALLERS.fullmatch(name) and not _is_named(name, named) and not _is_harmless(name, value)
    )


def loads_code(name: str) -> bool:
    """Whether a variable makes programs load code, so that only its whole name passes it on."""
    return _LOADERS.fullmatch(name) is not None


def _is_named(name: str, named: tuple[str, ...]) -> bool:
    return name in named if loads_code(name) else matches_any(name, named)


def _is_harmless(name: str, value: str) -> bool:
    if not _INSTALLERS.fullmatch(name) or loads_code(name):
        return False
    return not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or redact_secrets(value) != value)
