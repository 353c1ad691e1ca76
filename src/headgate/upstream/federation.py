"""The gateways that are reached through this one, so that no listing ever comes back to where it began."""

from collections.abc import Collection

import msgspec

from headgate.domain.errors import GatewayLoop
from headgate.domain.federation import META_GATEWAYS


class Federation:
    """What other gateways say of those behind them, and what this one says to those in front of it."""

    def __init__(self, instance: str, config: str = "", *, is_child: bool = False) -> None:
        """`config` is the identity of the configuration; a gateway that its client starts announces it."""
        self._own = frozenset(filter(None, (instance, config)))
        self._announced = self._own if is_child else frozenset({instance})
        self._behind: dict[str, frozenset[str]] = {}
        self._member = b""

    def learn(self, server: str, gateways: frozenset[str]) -> None:
        """These are behind the server, itself included; raises GatewayLoop if this gateway is."""
        if not self._own.isdisjoint(gateways):
            self._forget({server})
            raise GatewayLoop(server, itself=len(gateways) == 1)
        if gateways != self._behind.get(server):
            self._behind[server] = gateways
            self._member = b""

    def keep(self, servers: Collection[str]) -> None:
        """Only these servers are there from now on."""
        self._forget(self._behind.keys() - set(servers))

    def _forget(self, servers: Collection[str]) -> None:
        for server in servers:
            self._behind.pop(server, None)
        self._member = b""

    @property
    def member(self) -> bytes:
        """What another gateway is told in `_meta`: this one, and every one behind it."""
        if not self._member:
            found = sorted(self._announced.union(*self._behind.values()))
            self._member = b'"%s":%s' % (META_GATEWAYS.encode(), msgspec.json.encode(found))
        return self._member
