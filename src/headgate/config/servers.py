"""Turns the entries of `mcpServers`, as every MCP client writes them, into ServerSpecs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import msgspec

from headgate.config.client_formats import normalise_entry
from headgate.config.config_files import BasePaths
from headgate.config.server_entries import (
    RESERVED_SERVER_KEYS,
    SERVER_FIELDS,
    SERVER_KEY_ALIASES,
    BreakerEntry,
    Builtin,
    ProbeEntry,
    RetryEntry,
    ServerEntry,
    ToolPolicyEntry,
    check_connection,
    inherited_names,
    is_custom_header,
    is_header_name,
    is_redundant_header,
    is_reserved_header,
    tls_of,
)
from headgate.config.setting_checks import read_fields
from headgate.config.setting_values import (
    CONTROL_CHARACTERS,
    display_value,
    invalid_value_error,
    known_values,
    to_camel_case,
)
from headgate.config.variable_expansion import Lookup, expand
from headgate.delivery.argument_template import fill_template
from headgate.domain.errors import ConfigError
from headgate.domain.listing_mode import Curation, ListingMode
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.domain.upstream_policy import (
    BreakerSettings,
    Priority,
    Probe,
    Rate,
    RetrySettings,
    ToolClass,
    ToolSafety,
    UpstreamPolicy,
)
from headgate.domain.wildcards import matches_any

MAX_SERVER_NAME = 128

_TRANSPORTS = {
    "stdio": TransportType.STDIO,
    **dict.fromkeys(("http", "streamable-http", "streamableHttp"), TransportType.STREAMABLE_HTTP),
    "sse": TransportType.SSE,
}
_TRANSPORTS_BY_KEY: Mapping[str, tuple[TransportType, ...]] = {
    "command": (TransportType.STDIO,),
    "url": (TransportType.STREAMABLE_HTTP, TransportType.SSE),
    "builtin": (TransportType.BUILTIN,),
}
_PROCESS_KEYS = ("args", "env", "env_file", "inherit_env", "cwd")
_REQUEST_KEYS = ("headers", "proxy", "ca_file", "client_cert", "http2")
_FOREIGN_KEYS = {
    "command": _REQUEST_KEYS,
    "url": _PROCESS_KEYS,
    "builtin": (*_PROCESS_KEYS, *_REQUEST_KEYS),
}
_DISABLED_BY_ENTRY = "its entry in the configuration says so (enabled or disabled)"
_LETTER = re.compile(r"[A-Za-z0-9]")


class ParsedServers(msgspec.Struct, frozen=True):
    """The servers of the entries in the order of the file, and the warnings and errors about them."""

    servers: tuple[ServerSpec, ...] = ()
    # The invalid entries by name, and the reason for each.
    left_out: dict[str, str] = {}
    env_files: tuple[Path, ...] = ()


def read_servers(
    raw: Mapping[str, object], lookup: Lookup, base_paths: BasePaths, warnings: list[str]
) -> ParsedServers:
    """Every server that can be used; a wrong one is left out with a warning, and the others are served."""
    servers: list[ServerSpec] = []
    left_out: dict[str, str] = {}
    env_files: set[Path] = set()
    for name, entry in raw.items():
        try:
            servers.append(_read_server(name, entry, lookup, base_paths, warnings, env_files))
        except ConfigError as error:
            left_out[name] = f"{error.message}; {error.hint}"
            warnings.append(f"server {display_value(name)} is left out: {left_out[name]}")
    return ParsedServers(tuple(servers), left_out, tuple(sorted(env_files)))


def _read_server(
    name: str,
    entry: object,
    lookup: Lookup,
    base_paths: BasePaths,
    warnings: list[str],
    env_files: set[Path],
) -> ServerSpec:
    where = f"server {display_value(name)}"
    if not 0 < len(name) <= MAX_SERVER_NAME or CONTROL_CHARACTERS.search(name):
        raise ConfigError(
            "its name is empty, too long or holds a control character",
            hint=f"name it with 1 to {MAX_SERVER_NAME} printable characters",
        )
    if not isinstance(entry, dict):
        raise invalid_value_error(
            "its definition", display_value(entry), 'an object such as {"command": "..."} or {"url": "..."}'
        )
    raw = known_values(
        entry, SERVER_FIELDS, where, warnings, later=RESERVED_SERVER_KEYS, aliases=SERVER_KEY_ALIASES
    )
    expanded, problems = expand(raw, lookup)
    assert isinstance(expanded, dict)
    if not problems:
        values = normalise_entry(expanded, base_paths, where, warnings, env_files)
        return _spec(name, read_fields(values, ServerEntry, "", where, warnings), base_paths, warnings)
    enabled, disabled = str(expanded.get("enabled", True)), str(expanded.get("disabled", False))
    if enabled.lower() in ("false", "0") or disabled.lower() in ("true", "1"):
        # The operator disabled it, so its missing variables are not reported.
        return _disabled(name, raw, _DISABLED_BY_ENTRY)
    warnings += [f"{where} is disabled: {problem}" for problem in problems]
    return _disabled(name, raw, "; ".join(problems))


def _disabled(name: str, raw: Mapping[str, object], reason: str) -> ServerSpec:
    """A server whose variables are missing: enough to display it, too little to start it."""
    command, url, builtin = raw.get("command"), raw.get("url"), None
    if "builtin" in raw:
        known: tuple[Builtin, ...] = get_args(Builtin)
        # Any one where the name itself is missing.
        builtin = next((word for word in known if word == str(raw["builtin"]).casefold()), known[0])
    entry = ServerEntry(
        command=command if isinstance(command, str) else "",
        url=url if isinstance(url, str) else "",
        builtin=builtin,
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


def _spec(name: str, entry: ServerEntry, base_paths: BasePaths, warnings: list[str]) -> ServerSpec:
    kind = _kind(entry)
    transport = _transport(entry, kind)
    enabled = entry.enabled and not entry.disabled
    _check_process(entry)
    _check_request(entry)
    if entry.cold is not None and entry.cold is entry.hot:
        raise ConfigError("its cold and hot contradict each other", hint="remove one of the two")
    check_connection(name, entry, warnings)
    warnings += [
        f"{to_camel_case(key)!r} in server {display_value(name)} has no effect on a server with {kind!r}"
        for key in _FOREIGN_KEYS[kind]
        if getattr(entry, key)
    ]
    return ServerSpec(
        name=name,
        transport=transport,
        command=entry.command,
        args=entry.args,
        env=entry.env,
        inherit_env=inherited_names(
            entry.inherit_env, "inheritEnv", f"server {display_value(name)}", warnings
        ),
        cwd=str(base_paths.resolve(entry.cwd, "cwd")) if entry.cwd else None,
        url=entry.url,
        headers=_useful_headers(name, entry, warnings),
        proxy=entry.proxy.strip(),
        tls=tls_of(entry, base_paths),
        http2=entry.http2,
        builtin=entry.builtin or "",
        enabled=enabled,
        disabled_reason="" if enabled else _DISABLED_BY_ENTRY,
        timeout_seconds=entry.timeout,
        # A longer time for one call is deliberate.
        max_timeout_seconds=max(entry.max_timeout, entry.timeout),
        connect_timeout_seconds=entry.connect_timeout,
        start_timeout_seconds=entry.start_timeout,
        max_connections=entry.max_connections,
        shared=entry.shared,
        curation=_curation(name, entry, warnings),
        policy=upstream_policy_of(f"server {display_value(name)}", entry, warnings),
        cold=entry.hot is False if entry.cold is None else entry.cold,
        idle_timeout_seconds=entry.idle_timeout,
        max_restarts=entry.max_restarts,
    )


def _curation(name: str, entry: ServerEntry, warnings: list[str]) -> Curation:
    """How its tools are listed; an empty new name is ignored."""
    renamed = {tool: given for tool, given in entry.rename.items() if _LETTER.search(given)}
    warnings += [
        f"rename in server {display_value(name)} gives {display_value(tool)} the name "
        f"{display_value(given)}, which has no effect: a name needs a letter or a digit"
        for tool, given in entry.rename.items()
        if tool not in renamed
    ]
    mode = ListingMode(entry.listing) if entry.listing else None
    return Curation(mode, entry.pin, entry.hide, renamed)


def _kind(entry: ServerEntry) -> str:
    found = [key for key in _TRANSPORTS_BY_KEY if getattr(entry, key)]
    if len(found) != 1:
        has = " and ".join(found) or "none of command, url and builtin"
        raise ConfigError(f"it has {has}", hint="give it exactly one of command, url and builtin")
    return found[0]


def _transport(entry: ServerEntry, kind: str) -> TransportType:
    fitting = _TRANSPORTS_BY_KEY[kind]
    given = {_TRANSPORTS[word] for word in (entry.transport, entry.type) if word is not None}
    if len(given) > 1 or not given.issubset(fitting):
        raise ConfigError(
            f"its transport or type does not fit its {kind}",
            hint=f"leave both out, or write {' or '.join(fitting)} once",
        )
    if given:
        return given.pop()
    path = re.split(r"[?#]", entry.url, maxsplit=1)[0]
    return TransportType.SSE if path.rstrip("/").endswith("/sse") else fitting[0]


def _check_process(entry: ServerEntry) -> None:
    # Also what "C:\new" becomes when its backslash is not doubled.
    if CONTROL_CHARACTERS.search(entry.command):
        raise ConfigError("its command has a control character", hint=r"write a backslash in command as \\")
    texts = (*entry.args, *entry.env, *entry.env.values())
    if any("\0" in text for text in texts) or any(not name or "=" in name for name in entry.env):
        raise ConfigError(
            "its args or env hold a zero byte, or a variable has no usable name", hint="correct args and env"
        )


def _check_request(entry: ServerEntry) -> None:
    if entry.url and not _is_usable(entry.url):
        # Without the URL, which may contain a key.
        raise ConfigError(
            "its url is not usable", hint="write url as http://host:port/path or https://host/path"
        )
    for header, value in entry.headers.items():
        if not is_header_name(header) or CONTROL_CHARACTERS.search(value.replace("\t", " ")):
            raise ConfigError(
                f"its header {display_value(header)} has a character that HTTP does not allow",
                hint="correct headers",
            )
        if is_reserved_header(header):
            raise ConfigError(
                f"its header {display_value(header)} is one that the gateway writes itself",
                hint="take it out of headers",
            )


def _useful_headers(name: str, entry: ServerEntry, warnings: list[str]) -> dict[str, str]:
    """The operator's headers without those that are the gateway's to choose."""
    needless = [header for header in entry.headers if is_redundant_header(header)]
    if entry.url:
        warnings += [
            f"header {display_value(header)} in server {display_value(name)} has no effect: "
            "the gateway writes it itself"
            for header in needless
        ]
    return {header: value for header, value in entry.headers.items() if header not in needless}


def _is_usable(url: str) -> bool:
    if CONTROL_CHARACTERS.search(url) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# A process whose connection is gone is gone a moment later.
_SETTLE_SECONDS = 1.0


def upstream_policy_of(owner: str, entry: ServerEntry, warnings: list[str]) -> UpstreamPolicy:
    """How the calls of a server are carried, which warnings call `owner`; raises ConfigError."""
    reader = _PolicyReader(owner, entry, warnings)
    everything = reader.policy("", entry, ToolSafety())
    retry, breaker = entry.retry or RetryEntry(), entry.breaker or BreakerEntry()
    return UpstreamPolicy(
        all=everything,
        tools=reader.tools(everything),
        trusts_annotations=entry.trust_annotations,
        retry_settings=RetrySettings(
            attempts=retry.attempts,
            base_seconds=retry.base_delay,
            # A longer first wait is deliberate.
            longest_seconds=max(retry.max_delay, retry.base_delay),
        ),
        breaker_settings=BreakerSettings(failures=breaker.failures, rest_seconds=breaker.rest),
        window=entry.max_concurrency,
        queue=entry.max_queue,
    )


class _PolicyReader(msgspec.Struct, frozen=True):
    """Reads the delivery settings of one server; a place is empty for the server, or names a tool."""

    _owner: str
    _entry: ServerEntry
    _warnings: list[str]

    def tools(self, everything: ToolSafety) -> dict[str, ToolSafety]:
        policies: dict[str, ToolSafety] = {}
        for tool, entry in self._entry.tools.items():
            before = next((pattern for pattern in policies if matches_any(tool, (pattern,))), None)
            place = f"tool {display_value(tool)}"
            if before is not None:
                what = f"has no effect: {display_value(before)} before it stands for it too"
                self._warnings.append(f"{self._place_name(place)} {what}")
            if entry.probe is not None and entry.probe.tool == tool:
                raise ConfigError(f"the probe of {place} is the tool itself", hint="name a tool that reads")
            policies[tool] = self.policy(place, entry, everything)
        return policies

    def policy(self, place: str, entry: ToolPolicyEntry, inherited: ToolSafety) -> ToolSafety:
        policy = ToolSafety(
            kind=ToolClass(entry.kind) if entry.kind else None,
            key_argument=entry.key_argument,
            key_header=self._key_header(place, entry.key_header),
            key_window_seconds=entry.key_window,
            probe=self._probe(place, entry.probe) if entry.probe else None,
            ledger=entry.ledger,
            priority=Priority(entry.priority) if entry.priority else None,
            rate=Rate(entry.rate.per_second, entry.rate.burst) if entry.rate else None,
            timeout_seconds=entry.call_timeout,
        )
        self._check_class(place, policy, inherited)
        return policy

    def _probe(self, place: str, entry: ProbeEntry) -> Probe:
        for name, argument in entry.arguments.items():
            try:
                fill_template(msgspec.json.encode(argument), _TEMPLATE_VALUES)
            except ValueError as error:
                where = f"probe in {place}" if place else "probe"
                # Without its message, which quotes the text: that may be a secret with a dollar in it.
                raise ConfigError(
                    f"{display_value(name)} of arguments in {where} cannot be filled in",
                    hint="write $arguments.name, $key or $op_id for what the call has, and $$ for a dollar",
                ) from error
        settle = entry.settle
        if settle is None and not self._entry.url:
            # A process that is gone is at work no more; a server behind a url may well be.
            settle = _SETTLE_SECONDS
        return Probe(entry.tool, msgspec.json.encode(entry.arguments), entry.happened, settle)

    def _key_header(self, place: str, header: str) -> str:
        if not header:
            return ""
        where = f"keyHeader in {place}" if place else "keyHeader"
        if not is_custom_header(header):
            raise invalid_value_error(
                where, display_value(header), "the name of a header that the gateway does not write itself"
            )
        if header.lower() in map(str.lower, self._entry.headers):
            raise ConfigError(
                f"{where} is {display_value(header)}, which headers holds", hint="take it out of one"
            )
        if self._entry.url:
            return header
        kind = "command" if self._entry.command else "builtin"
        self._warnings.append(
            f"'keyHeader' in {self._place_name(place)} has no effect on a server with {kind!r}"
        )
        # Left out, because a tool without a key that arrives must not count as keyed.
        return ""

    def _check_class(self, place: str, policy: ToolSafety, inherited: ToolSafety) -> None:
        kind = policy.kind or inherited.kind
        if kind is ToolClass.PROBEABLE and not (policy.probe or inherited.probe):
            raise ConfigError(
                f"{place or 'it'} is probeable, but has no probe", hint="add a probe, or name another class"
            )
        has_key = any(one.key_argument or one.key_header for one in (policy, inherited))
        if policy.kind is ToolClass.KEYED and not has_key:
            self._warnings.append(
                f"{self._place_name(place)} is keyed only if the server speaks rmcp with idempotency: "
                "it has neither keyArgument nor keyHeader"
            )

    def _place_name(self, place: str) -> str:
        return f"{place} of {self._owner}" if place else self._owner


class _AnyArguments(dict[str, object]):
    """Arguments with a value for every name, because those of a call are not known yet."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __getitem__(self, _name: str) -> object:
        return self


_TEMPLATE_VALUES: Mapping[str, object] = {"arguments": _AnyArguments(), "key": "", "op_id": ""}
