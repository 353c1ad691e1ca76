"""Chained gateways: their identities, the Via header, and the detection of loops."""

import hashlib
import re
from functools import cached_property
from typing import Final

import msgspec
from msgspec import Raw

from headgate.domain.payload import decode_or

# In the environment of a child: the gateways that started it, the first one first.
CHAIN_VARIABLE: Final = "HEADGATE_CHAIN"
# In the answers to another gateway: the instances whose tools may be among those that are listed.
META_GATEWAYS: Final = "io.headgate/gateways"
# In the data of the error that refuses a request because it has come in a loop.
META_LOOP: Final = "io.headgate/loop"
# The name of a gateway as a client of its servers.
CLIENT_NAME: Final = "headgate"
# More gateways that start one another are a loop that shows no configuration twice.
MAX_CHAIN_LENGTH: Final = 8
# The most gateways that another gateway may report; an organisation has fewer.
_MAX_GATEWAYS: Final = 256
_ID: Final = re.compile(r"[0-9a-f]{16}")


class GatewayIdentity(msgspec.Struct, frozen=True):
    """One running gateway: its instance, and the configuration that it runs; empty for none."""

    instance: str
    config: str = ""

    @property
    def pseudonym(self) -> bytes:
        return b"headgate-" + self.instance.encode()


class GatewayChain(msgspec.Struct, frozen=True, dict=True):
    """A gateway and those that started it."""

    own: GatewayIdentity
    ancestors: tuple[GatewayIdentity, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether a gateway with the same configuration started this one, which would go on without end."""
        return bool(self.own.config) and any(one.config == self.own.config for one in self.ancestors)

    @property
    def too_long(self) -> bool:
        """Whether more gateways started one another than is plausible."""
        return len(self.ancestors) >= MAX_CHAIN_LENGTH

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variable with the whole chain, for a child process."""
        chain = (*self.ancestors, self.own)
        return {CHAIN_VARIABLE: ",".join(f"{one.instance}/{one.config}" for one in chain)}

    @cached_property
    def via_header(self) -> bytes:
        """The header line that every HTTP request to a server carries (RFC 9110, section 7.6.3)."""
        chain = (*self.ancestors, self.own)
        return b"via: " + b", ".join(b"1.1 " + one.pseudonym for one in chain) + b"\r\n"


def config_identity(host: str, path: str) -> str:
    """A digest that identifies a configuration file; `path` is absolute and has no links in it."""
    return hashlib.sha256(f"{host}\0{path}".encode(errors="surrogateescape")).hexdigest()[:16]


def parse_chain(variable: str) -> tuple[GatewayIdentity, ...]:
    """The gateways that started this one; none if the text is no chain."""
    found = []
    # The last ones count, however long the text is.
    for part in variable.split(",")[-2 * MAX_CHAIN_LENGTH :]:
        instance, _, config = part.strip().partition("/")
        if _ID.fullmatch(instance) and (not config or _ID.fullmatch(config)):
            found.append(GatewayIdentity(instance, config))
    return tuple(found)


def gateways_in_meta(meta: Raw | bytes) -> frozenset[str]:
    """The instances that the `_meta` of an answer names; none where another server than a gateway answers."""
    raw = bytes(meta)
    if META_GATEWAYS.encode() not in raw:
        return frozenset()
    named: Raw | bytes = decode_or(raw, dict[str, Raw], dict[str, Raw]()).get(META_GATEWAYS, b"[]")
    found = decode_or(named, list[str], list[str]())
    return frozenset(one for one in found[:_MAX_GATEWAYS] if _ID.fullmatch(one))
