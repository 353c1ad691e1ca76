"""Resolves host names in threads of their own, so that a name server that hangs delays only its own names.

`loop.getaddrinfo` uses four threads of libuv on uvloop, and the default thread pool on asyncio: a few lookups
that hang would delay all other names, on asyncio all work off the loop, and on both the end of the gateway.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

# Lookups of different names at the same time, one thread each; the system ends each after the timeouts
# of resolv.conf.
MOST_LOOKUPS = 64
_Lookup = asyncio.Future[list[str]]


def addresses_of(host: str) -> list[str]:
    """The addresses of a host, the preferred one first; blocks, and raises OSError or UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_address(sockaddr) for *_, sockaddr in found))


class HostResolver:
    """Resolves host names; one lookup of a name serves all callers that wait for it."""

    def __init__(self, look_up: Callable[[str], list[str]] = addresses_of) -> None:
        self._look_up = look_up
        self._lookups: dict[str, _Lookup] = {}

    async def resolve(self, host: str) -> list[str]:
        """The addresses, the preferred one first; raises OSError or UnicodeError. It has no timeout."""
        with suppress(ValueError):
            ipaddress.ip_address(host)
            return [host]
        lookup = self._lookups.get(host)
        if lookup is None:
            if len(self._lookups) >= MOST_LOOKUPS:
                raise OSError(f"{MOST_LOOKUPS} lookups of other host names hang; check the name server")
            lookup = self._start(host)
        # A caller that gives up leaves the lookup to the others.
        return await asyncio.shield(lookup)

    def _start(self, host: str) -> _Lookup:
        loop = asyncio.get_running_loop()
        lookup: _Lookup = loop.create_future()
        # A daemon: the gateway ends without waiting for a name server.
        thread = threading.Thread(target=self._run, args=(host, loop, lookup), name="resolver", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(f"no thread to resolve the host name {host} ({error}); raise the limit") from error
        self._lookups[host] = lookup
        lookup.add_done_callback(partial(self._forget, host))
        return lookup

    def _run(self, host: str, loop: asyncio.AbstractEventLoop, lookup: _Lookup) -> None:
        try:
            deliver = partial(lookup.set_result, self._look_up(host))
        except OSError as error:
            reason = f"the host name {host} could not be resolved ({error.strerror or error})"
            deliver = partial(lookup.set_exception, OSError(error.errno, reason))
        except UnicodeError as error:
            deliver = partial(lookup.set_exception, error)
        # The event loop may have ended, and the lookup with it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if lookup.done() else deliver())

    def _forget(self, host: str, lookup: _Lookup) -> None:
        del self._lookups[host]
        if not lookup.cancelled():
            # All callers may have given up.
            lookup.exception()


def _address(sockaddr: tuple[object, ...]) -> str:
    """The address; a link-local one has the number of its interface."""
    scope = sockaddr[3] if len(sockaddr) == 4 else 0
    return f"{sockaddr[0]}%{scope}" if scope else str(sockaddr[0])
