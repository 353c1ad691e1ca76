"""An upstream after the handshake: knows its era, and what each era wants to see in a request."""

import itertools
from collections.abc import Mapping
from functools import cached_property

import msgspec
from msgspec import DecodeError, Raw

from headgate import __version__
from headgate.domain.call import Answer, Call
from headgate.domain.errors import InvalidAnswer
from headgate.domain.payload import Payload
from headgate.domain.server import ServerSpec
from headgate.upstream.link import Link, Outgoing
from headgate.upstream.spool import discard
from headgate.wire.elements import elements
from headgate.wire.envelope import encode_object
from headgate.wire.eras import (
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROGRESS_TOKEN,
    META_VERSION,
    Era,
    era_of,
)
from headgate.wire.skim import Skimmer

CLIENT_INFO = msgspec.json.encode({"name": "headgate", "version": __version__})
# A listing that has not ended after this many pages goes in circles.
_MOST_PAGES = 1000
_MOST_TOOLS = 100_000
FOREVER = 10 * 365 * 86400.0


class _Capabilities(msgspec.Struct):
    tools: dict[str, object] | None = None


class Greeting(msgspec.Struct, frozen=True, dict=True):
    """What the handshake told: the agreed version and what the upstream can do."""

    version: str
    capabilities: Raw

    @property
    def offers_tools(self) -> bool:
        """Whether it has tools at all; one that says nothing about itself is asked."""
        if self._declared is None:
            return True
        return self._declared.tools is not None or bytes(self.capabilities) in (b"", b"{}")

    @property
    def tells_changes(self) -> bool:
        """Whether it tells when its tools change."""
        return self._declared is not None and bool((self._declared.tools or {}).get("listChanged"))

    @cached_property
    def _declared(self) -> _Capabilities | None:
        try:
            return msgspec.json.decode(self.capabilities, type=_Capabilities)
        except DecodeError:
            return None


class _Page(msgspec.Struct):
    tools: list[Raw]
    nextCursor: str | None = None  # noqa: N815 (the protocol's spelling)


_page = msgspec.json.Decoder(_Page)


def _read_page(result: bytes) -> _Page:
    """One page of tools; one tool that no parser takes must not cost the others. Raises ValueError."""
    try:
        return _page.decode(result)
    except (DecodeError, RecursionError):
        skimmer = Skimmer()
        skimmer.feed(result)
        values = {key: result[start:end] for key, (start, end) in skimmer.finish().items()}
        cursor = msgspec.json.decode(values.get("nextCursor", b"null"), type=str | None)
        return _Page([Raw(tool) for tool in elements(values.get("tools", b""))], cursor)


def connection_meta(version: str, capabilities: bytes = b"") -> dict[str, Raw]:
    """What every request of the stateless era says about its sender."""
    return {
        META_VERSION: Raw(msgspec.json.encode(version)),
        META_CLIENT_INFO: Raw(CLIENT_INFO),
        META_CAPABILITIES: Raw(capabilities or b"{}"),
    }


class Peer:
    """Speaks with one upstream in its own era."""

    def __init__(self, spec: ServerSpec, link: Link, greeting: Greeting) -> None:
        self.spec = spec
        self.link = link
        self.greeting = greeting
        self.era = era_of(greeting.version)
        self._tokens = itertools.count(1)

    async def call(self, call: Call) -> Answer:
        """Call a tool; raises UpstreamError or SessionGone."""
        request, tool, spec = call.request, call.tool, self.spec
        token = next(self._tokens) if request.on_progress is not None else 0
        answer = await self.link.request(
            Outgoing(
                method="tools/call",
                params=self._call_params(call, token),
                what=tool.public_name,
                name=tool.name,
                timeout_seconds=spec.timeout_seconds,
                max_timeout_seconds=spec.max_timeout_seconds,
                progress_token=token,
                on_progress=request.on_progress,
            )
        )
        return msgspec.structs.replace(answer, typed=True) if self.era is Era.STATELESS else answer

    def _call_params(self, call: Call, token: int) -> bytes:
        request = call.request
        meta = self._meta(request.meta, request.capabilities, token)
        parts = [b'{"name":', msgspec.json.encode(call.tool.name)]
        if request.arguments:
            parts += (b',"arguments":', request.arguments)
        if meta:
            parts += (b',"_meta":', encode_object(meta))
        for key, value in request.more.items():
            parts += (b",", msgspec.json.encode(key), b":", bytes(value))
        parts.append(b"}")
        return b"".join(parts)

    def _meta(self, meta: Mapping[str, Raw], capabilities: bytes, token: int) -> dict[str, Raw]:
        if not token and self.era is Era.HANDSHAKE:
            return dict(meta)
        own = connection_meta(self.greeting.version, capabilities) if self.era is Era.STATELESS else {}
        progress = {META_PROGRESS_TOKEN: Raw(b"%d" % token)} if token else {}
        return {**meta, **progress, **own}

    async def list_tools(self) -> list[bytes]:
        """Every tool's definition, as the upstream wrote it; raises UpstreamError or SessionGone."""
        definitions: list[bytes] = []
        cursor: str | None = None
        seen: set[str] = set()
        if not self.greeting.offers_tools:
            return definitions
        for _ in range(_MOST_PAGES):
            page = await self._page(cursor)
            definitions += [bytes(tool) for tool in page.tools]
            cursor = page.nextCursor
            if not cursor or len(definitions) >= _MOST_TOOLS:
                return definitions
            if cursor in seen:
                break
            seen.add(cursor)
        raise InvalidAnswer(self.spec.name, "tools/list", "pages that go in circles")

    async def _page(self, cursor: str | None) -> _Page:
        params = {"cursor": Raw(msgspec.json.encode(cursor))} if cursor else {}
        answer = await self._ask("tools/list", params)
        if answer.error:
            raise InvalidAnswer(self.spec.name, "tools/list", f"the error {answer.error[:200].decode()}")
        result = contents(answer.result)
        try:
            return _read_page(result)
        except (DecodeError, ValueError) as error:
            raise InvalidAnswer(self.spec.name, "tools/list", f"no list of tools ({error})") from error

    async def _ask(self, method: str, params: dict[str, Raw], seconds: float | None = None) -> Answer:
        if self.era is Era.STATELESS:
            params = {**params, "_meta": Raw(encode_object(connection_meta(self.greeting.version)))}
        limit = seconds or self.spec.timeout_seconds
        return await self.link.request(
            Outgoing(
                method=method,
                params=encode_object(params) if params else b"",
                what=method,
                timeout_seconds=limit,
                max_timeout_seconds=limit,
            )
        )

    async def ping(self, seconds: float) -> None:
        """Ask whether anybody is there; raises UpstreamError or SessionGone."""
        method = "server/discover" if self.era is Era.STATELESS else "ping"
        discard((await self._ask(method, {}, seconds)).result)

    async def listen(self) -> None:
        """Keep a subscription open on which a stateless upstream tells that its tools changed."""
        wanted = Raw(b'{"toolsListChanged":true}')
        discard((await self._ask("subscriptions/listen", {"notifications": wanted}, FOREVER)).result)


def contents(payload: Payload) -> bytes:
    """A payload that must be opened, in memory."""
    if isinstance(payload, bytes):
        return payload
    try:
        return b"".join(payload.chunks())
    finally:
        payload.close()
