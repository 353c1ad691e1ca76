"""Detects server entries that are this gateway itself, and gateways that start each other in a loop."""

import ipaddress
import os
import secrets
import shlex
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError, GatewayLoop
from headgate.domain.gateway_chain import (
    CHAIN_VARIABLE,
    MAX_CHAIN_LENGTH,
    GatewayChain,
    GatewayIdentity,
    config_identity,
    parse_chain,
)
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.server.guard import MCP_PATHS, SSE_PATHS

_PROGRAM: Final = "headgate"
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_OVER_HTTP: Final = (TransportType.STREAMABLE_HTTP, TransportType.SSE)


def chain_of(settings: Settings) -> GatewayChain:
    """This gateway and those that started it, by its environment."""
    path = settings.config_path
    config = config_identity(socket.gethostname(), os.path.realpath(path)) if path is not None else ""
    own = GatewayIdentity(secrets.token_hex(8), config)
    return GatewayChain(own, parse_chain(os.environ.get(CHAIN_VARIABLE, "")))


def refuse_loop(settings: Settings, chain: GatewayChain) -> None:
    """Raises ConfigError for a gateway that would start gateways without end; built-in servers start none."""
    if not _has_servers(settings):
        return
    if chain.is_loop:
        raise ConfigError(
            f"a gateway with the configuration {settings.config_path} has started this one with the same "
            "configuration, which would go on without end",
            hint="remove the entry that starts it, or give that entry another configuration",
        )
    if chain.too_long:
        raise ConfigError(
            f"more than {MAX_CHAIN_LENGTH} gateways have started one another",
            hint="remove the entry in one of their configurations that starts the next gateway",
        )


def starts_servers_as_child(settings: Settings) -> bool:
    """Whether a client starts this gateway, and this gateway starts servers.

    Its configuration then reveals a loop even if a wrapper has removed the chain from the environment.
    """
    return settings.transport == "stdio" and _has_servers(settings)


def _has_servers(settings: Settings) -> bool:
    return any(
        server.enabled and server.transport is not TransportType.BUILTIN for server in settings.servers
    )


def refuse_own_entry(spec: ServerSpec, settings: Settings) -> None:
    """Raises GatewayLoop for an entry whose definition is this gateway."""
    starts_itself = spec.transport is TransportType.STDIO and _starts_itself(spec, settings.config_path)
    if starts_itself or (spec.transport in _OVER_HTTP and _is_own_address(spec.url, settings)):
        raise GatewayLoop(spec.name, itself=True)


# A command.


def _starts_itself(spec: ServerSpec, config: Path | None) -> bool:
    """Whether the command is `headgate serve` with the configuration of this gateway."""
    if config is None:
        return False
    words = list(_words([spec.command, *spec.args]))
    # A package runner may name the package before the program.
    following = (place for place, word in enumerate(words, 1) if _is_program(word))
    at = next((place for place in following if words[place : place + 1] == ["serve"]), None)
    if at is None:
        return False
    named = _option(words[at + 1 :], "--config")
    # Links are not followed here; a loop through one is found by the gateway that it starts.
    return named is not None and os.path.abspath(Path(spec.cwd or "", named)) == os.path.abspath(config)


def _words(command: Sequence[str]) -> Iterator[str]:
    """The words of a command; those of a line that a shell is given, too."""
    is_shell = Path(command[0]).name in _SHELLS
    for word in command:
        try:
            yield from shlex.split(word) if is_shell and " " in word else [word]
        except ValueError:
            yield word


def _is_program(word: str) -> bool:
    # With a version, as package runners take it.
    return Path(word).name.partition("@")[0].partition("==")[0] in (_PROGRAM, f"{_PROGRAM}.exe")


def _option(words: Sequence[str], name: str) -> str | None:
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


# An address.


def _is_own_address(url: str, settings: Settings) -> bool:
    """Whether the URL is one of those that this gateway serves clients at."""
    try:
        parts = urlsplit(url)
        port, host = parts.port or 80, parts.hostname or ""
    except ValueError:
        return False
    if settings.transport == "stdio" or parts.scheme != "http" or port != settings.port:
        return False
    if parts.path not in MCP_PATHS and parts.path not in SSE_PATHS:
        return False
    # Whether a connection to `host` arrives where the gateway listens; nothing is looked up.
    host = host.rstrip(".")
    own = settings.host.lower().strip("[]")
    if host == own:
        return True
    if host == socket.gethostname().lower():
        try:
            return ipaddress.ip_address(own).is_unspecified
        except ValueError:
            return False
    addresses = {"127.0.0.1", "::1"} if host == "localhost" or host.endswith(".localhost") else {host}
    listening = {"127.0.0.1", "::1"} if own == "localhost" else {own}
    return any(_reaches(there, here) for there in addresses for here in listening)


def _reaches(there: str, here: str) -> bool:
    try:
        target, listening = ipaddress.ip_address(there), ipaddress.ip_address(here)
    except ValueError:
        return False
    mapped = getattr(target, "ipv4_mapped", None)
    target = mapped if mapped is not None else target
    if target.is_unspecified:
        # A connection to any address is one to this machine.
        return listening.is_unspecified or listening.is_loopback
    if listening.is_unspecified:
        # Other addresses of this machine are found when a request of the gateway arrives at itself.
        return target.is_loopback and (target.version == listening.version or listening.version == 6)
    return target == listening
