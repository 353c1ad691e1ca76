"""Turns the entries of `mcpServers`, as every MCP client writes them, into ServerSpecs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import msgspec

from headgate.config.care import care_of
from headgate.config.connection import check_connection, tls_of
from headgate.config.entries import ALIASES, FIELDS, LATER, Builtin, ServerEntry
from headgate.config.expansion import Lookup, expand
from headgate.config.files import Places
from headgate.config.headers import is_header, is_needless, is_ours
from headgate.config.inherit_env import inherited_names
from headgate.config.keys import camel, known_values
from headgate.config.objects import read_fields
from headgate.config.pasted import normalised
from headgate.config.values import CONTROL, refusal, shown
from headgate.domain.errors import ConfigError
from headgate.domain.listing import Curation, Mode
from headgate.domain.server import ServerSpec, Transport

LONGEST_NAME = 128

_TRANSPORTS = {
    "stdio": Transport.STDIO,
    "http": Transport.STREAMABLE_HTTP,
    "streamable-http": Transport.STREAMABLE_HTTP,
    "streamableHttp": Transport.STREAMABLE_HTTP,
    "sse": Transport.SSE,
}
_FITTING: Mapping[str, tuple[Transport, ...]] = {
    "command": (Transport.STDIO,),
    "url": (Transport.STREAMABLE_HTTP, Transport.SSE),
    "builtin": (Transport.BUILTIN,),
}
_CONNECTION_KEYS = ("proxy", "ca_file", "client_cert", "http2")
_FOREIGN_KEYS = {
    "command": ("headers", *_CONNECTION_KEYS),
    "url": ("args", "env", "env_file", "inherit_env", "cwd"),
    "builtin": ("args", "env", "env_file", "inherit_env", "cwd", "headers", *_CONNECTION_KEYS),
}
_SWITCHED_OFF = "its entry in the configuration says so (enabled or disabled)"
_LETTER = re.compile(r"[A-Za-z0-9]")


class ReadServers(msgspec.Struct, frozen=True):
    """What became of the entries: servers in the order of the file, and what else was read for them."""

    servers: tuple[ServerSpec, ...] = ()
    # The entries that are wrong, by name, and what is wrong with each.
    left_out: dict[str, str] = {}
    env_files: tuple[Path, ...] = ()


def read_servers(raw: Mapping[str, object], lookup: Lookup, here: Places, warnings: list[str]) -> ReadServers:
    """Every server that can be used; a wrong one is left out with a warning, and the others are served."""
    servers: list[ServerSpec] = []
    left_out: dict[str, str] = {}
    env_files: set[Path] = set()
    for name, entry in raw.items():
        try:
            servers.append(_read_server(name, entry, lookup, here, warnings, env_files))
        except ConfigError as error:
            left_out[name] = f"{error.message}; {error.hint}"
            warnings.append(f"server {shown(name)} is left out: {left_out[name]}")
    return ReadServers(tuple(servers), left_out, tuple(sorted(env_files)))


def _read_server(
    name: str,
    entry: object,
    lookup: Lookup,
    here: Places,
    warnings: list[str],
    env_files: set[Path],
) -> ServerSpec:
    where = f"server {shown(name)}"
    if not 0 < len(name) <= LONGEST_NAME or CONTROL.search(name):
        raise ConfigError(
            "its name is empty, too long or holds a control character",
            hint=f"name it with 1 to {LONGEST_NAME} printable characters",
        )
    if not isinstance(entry, dict):
        raise refusal(
            "its definition", shown(entry), 'an object such as {"command": "..."} or {"url": "..."}'
        )
    raw = known_values(entry, FIELDS, where, warnings, later=LATER, aliases=ALIASES)
    expanded, problems = expand(raw, lookup)
    assert isinstance(expanded, dict)
    if not problems:
        values = normalised(expanded, here, where, warnings, env_files)
        return _spec(name, read_fields(values, ServerEntry, "", where, warnings), here, warnings)
    if not _is_off(expanded):
        warnings += [f"{where} is disabled: {problem}" for problem in problems]
    return _disabled(name, raw, _SWITCHED_OFF if _is_off(expanded) else "; ".join(problems))


def _is_off(expanded: Mapping[str, object]) -> bool:
    """Whether the operator turned it off, so that nobody need hear of its missing variables."""
    enabled, disabled = str(expanded.get("enabled", True)), str(expanded.get("disabled", False))
    return enabled.lower() in ("false", "0") or disabled.lower() in ("true", "1")


def _disabled(name: str, raw: Mapping[str, object], reason: str) -> ServerSpec:
    """What can be said of a server whose variables are missing: enough to show it, too little to start it."""
    command, url = raw.get("command"), raw.get("url")
    entry = ServerEntry(
        command=command if isinstance(command, str) else "",
        url=url if isinstance(url, str) else "",
        builtin=_builtin(raw["builtin"]) if "builtin" in raw else None,
    )
    return ServerSpec(
        name=name,
        transport=_transport(entry, _kind(entry)),
        command=entry.command,
        url=entry.url,
        builtin=entry.builtin or "",
        enabled=False,
        disabled_reason=reason,
    )


def _builtin(told: object) -> Builtin:
    """The built-in server of that name, or any one where the name itself is missing."""
    known: tuple[Builtin, ...] = get_args(Builtin)
    return next((word for word in known if word == str(told).casefold()), known[0])


def _spec(name: str, entry: ServerEntry, here: Places, warnings: list[str]) -> ServerSpec:
    kind = _kind(entry)
    transport = _transport(entry, kind)
    enabled = entry.enabled and not entry.disabled
    _check_process(entry)
    _check_request(entry)
    check_connection(name, entry, warnings)
    warnings += [
        f"{camel(key)!r} in server {shown(name)} has no effect on a server with {kind!r}"
        for key in _FOREIGN_KEYS[kind]
        if getattr(entry, key)
    ]
    return ServerSpec(
        name=name,
        transport=transport,
        command=entry.command,
        args=entry.args,
        env=entry.env,
        inherit_env=inherited_names(entry.inherit_env, "inheritEnv", f"server {shown(name)}", warnings),
        cwd=str(here.resolve(entry.cwd, "cwd")) if entry.cwd else None,
        url=entry.url,
        headers=_useful_headers(name, entry, warnings),
        proxy=entry.proxy.strip(),
        tls=tls_of(entry, here),
        http2=entry.http2,
        builtin=entry.builtin or "",
        enabled=enabled,
        disabled_reason="" if enabled else _SWITCHED_OFF,
        timeout_seconds=entry.timeout,
        # Whoever allows one call a longer time means it.
        max_timeout_seconds=max(entry.max_timeout, entry.timeout),
        connect_timeout_seconds=entry.connect_timeout,
        start_timeout_seconds=entry.start_timeout,
        max_connections=entry.max_connections,
        shared=entry.shared,
        curation=_curation(name, entry, warnings),
        policy=care_of(f"server {shown(name)}", entry, warnings),
        cold=_is_cold(entry),
        idle_timeout_seconds=entry.idle_timeout,
        max_restarts=entry.max_restarts,
    )


def _is_cold(entry: ServerEntry) -> bool:
    if entry.cold is not None and entry.cold is entry.hot:
        raise ConfigError("its cold and hot contradict each other", hint="remove one of the two")
    return entry.hot is False if entry.cold is None else entry.cold


def _curation(name: str, entry: ServerEntry, warnings: list[str]) -> Curation:
    """How its tools are shown; a new name that says nothing is left out."""
    renamed = {tool: given for tool, given in entry.rename.items() if _LETTER.search(given)}
    warnings += [
        f"rename in server {shown(name)} gives {shown(tool)} the name {shown(given)}, which has no effect: "
        "a name needs a letter or a digit"
        for tool, given in entry.rename.items()
        if tool not in renamed
    ]
    mode = Mode(entry.listing) if entry.listing else None
    return Curation(mode, entry.pin, entry.hide, renamed)


def _kind(entry: ServerEntry) -> str:
    found = [key for key in _FITTING if getattr(entry, key)]
    if len(found) != 1:
        has = " and ".join(found) or "none of command, url and builtin"
        raise ConfigError(f"it has {has}", hint="give it exactly one of command, url and builtin")
    return found[0]


def _transport(entry: ServerEntry, kind: str) -> Transport:
    fitting = _FITTING[kind]
    told = {_TRANSPORTS[word] for word in (entry.transport, entry.type) if word is not None}
    if len(told) > 1 or not told.issubset(fitting):
        raise ConfigError(
            f"its transport or type does not fit its {kind}",
            hint=f"leave both out, or write {' or '.join(fitting)} once",
        )
    if told:
        return told.pop()
    path = re.split(r"[?#]", entry.url, maxsplit=1)[0]
    return Transport.SSE if path.rstrip("/").endswith("/sse") else fitting[0]


def _check_process(entry: ServerEntry) -> None:
    # Also what "C:\new" becomes when its backslash is not doubled.
    if CONTROL.search(entry.command):
        raise ConfigError("its command has a control character", hint=r"write a backslash in command as \\")
    texts = (*entry.args, *entry.env, *entry.env.values())
    if any("\0" in text for text in texts) or any(not name or "=" in name for name in entry.env):
        raise ConfigError(
            "its args or env hold a zero byte, or a variable has no usable name", hint="correct args and env"
        )


def _check_request(entry: ServerEntry) -> None:
    if entry.url and not _is_usable(entry.url):
        # The url itself is not shown: it may hold a key.
        raise ConfigError(
            "its url is not usable", hint="write url as http://host:port/path or https://host/path"
        )
    for header, value in entry.headers.items():
        if not is_header(header) or CONTROL.search(value.replace("\t", " ")):
            raise ConfigError(
                f"its header {shown(header)} has a character that HTTP does not allow", hint="correct headers"
            )
        if is_ours(header):
            raise ConfigError(
                f"its header {shown(header)} is one that the gateway writes itself",
                hint="take it out of headers",
            )


def _useful_headers(name: str, entry: ServerEntry, warnings: list[str]) -> dict[str, str]:
    """The operator's headers without those that are the gateway's to choose."""
    needless = [header for header in entry.headers if is_needless(header)]
    if entry.url:
        warnings += [
            f"header {shown(header)} in server {shown(name)} has no effect: the gateway writes it itself"
            for header in needless
        ]
    return {header: value for header, value in entry.headers.items() if header not in needless}


def _is_usable(url: str) -> bool:
    if CONTROL.search(url) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
