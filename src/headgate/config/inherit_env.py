"""Reads `inheritEnv`: names of the gateway's own variables that child processes inherit too."""

from collections.abc import Sequence

import msgspec

from headgate.config.values import refusal, shown
from headgate.domain.child_environment import loads_code
from headgate.domain.server import ServerSpec, Transport


def inherited_names(names: tuple[str, ...], where: str, owner: str, warnings: list[str]) -> tuple[str, ...]:
    """The names as given, with a warning for each that loads code; raises ConfigError."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            # Not the entry itself: what follows the = may be a secret.
            what = shown(name.partition("=")[0] + "=...") if "=" in name else shown(name)
            raise refusal(
                f"an entry of {where}",
                what,
                "the name of a variable; its value, if it has a new one, goes into env",
            )
    inside = f"{where} of {owner}" if owner else where
    warnings += [_warning(name, inside) for name in names if loads_code(name)]
    return names


def _warning(name: str, inside: str) -> str:
    if "*" in name:
        return (
            f"{shown(name)} in {inside} does not pass on variables that load code into programs: "
            "write the whole name of each that is needed"
        )
    return (
        f"{inside} passes on {shown(name)}, which loads code into every program that reads it: "
        "remove it unless the server needs it"
    )


def inheriting(servers: Sequence[ServerSpec], names: tuple[str, ...]) -> tuple[ServerSpec, ...]:
    """The servers, of which each process inherits these variables besides its own."""
    if not names:
        return tuple(servers)
    return tuple(
        msgspec.structs.replace(server, inherit_env=tuple(dict.fromkeys((*names, *server.inherit_env))))
        if server.transport is Transport.STDIO
        else server
        for server in servers
    )
