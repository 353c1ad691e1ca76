"""One tool call on its way: who asks for what, and what came back."""

from collections.abc import Callable, Mapping

import msgspec

from headgate.domain.payload import Payload
from headgate.domain.tool import Tool


class Caller(msgspec.Struct, frozen=True):
    """Who calls; without keys everybody is the local user."""

    principal: str = "local"


LOCAL = Caller()

# Given the params of a progress notification without their token.
ProgressListener = Callable[[dict[str, msgspec.Raw]], None]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for; every value is the client's own bytes."""

    caller: Caller
    tool: str
    # b"" when the client sent none.
    arguments: bytes
    # `_meta` without what belongs to the client's own connection.
    meta: Mapping[str, msgspec.Raw] = {}
    # Members of params that we do not know, carried on.
    more: Mapping[str, msgspec.Raw] = {}
    # Declared to a stateless upstream on the client's behalf; b"" when it could not answer questions.
    capabilities: bytes = b""
    on_progress: ProgressListener | None = None


class Call(msgspec.Struct, frozen=True):
    """A request that found its tool and was let through."""

    request: Request
    tool: Tool


class Answer(msgspec.Struct, frozen=True):
    """What the upstream said: a result, or a JSON-RPC error object, as its own bytes."""

    result: Payload = b""
    error: bytes = b""
    # Whether the result came from a stateless upstream and so names its `resultType`.
    typed: bool = False
