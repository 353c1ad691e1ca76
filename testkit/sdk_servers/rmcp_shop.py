"""A server of the official SDK that writes down what it is asked, and answers as a test wants."""

import argparse
import asyncio
import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import Field

from testkit.sdk_servers.transports import serve

FEATURES = ("ack", "retry", "idempotency", "transactions", "chunking")
CHUNK_BYTES = 1000
READ = types.ToolAnnotations(read_only_hint=True)
IDEMPOTENT = types.ToolAnnotations(idempotent_hint=True)
TOOLS: dict[str, types.ToolAnnotations | None] = {
    "pay": None,
    "refund": None,
    "book": None,
    "cancel": None,
    "look": READ,
    "put": IDEMPOTENT,
    "nap": None,
    "big": READ,
    "seen": READ,
}
Outcome = Exception | types.CallToolResult


class _Declaring(Server[Any]):
    """Says that it speaks rmcp, in both eras."""

    features: Sequence[str] | None = None
    # What it calls rmcp.
    rmcp_name = "rmcp"

    def get_capabilities(self, *given: Any, **named: Any) -> types.ServerCapabilities:
        """What the SDK derives, with rmcp beside it."""
        capabilities = super().get_capabilities(*given, **named)
        if self.features is not None:
            announced = {"version": "0.1.0", "features": list(self.features)}
            capabilities.experimental = {self.rmcp_name: announced}
        return capabilities


class Shop:
    """`requests` is what it was asked, `executed` what it carried out; `script` says what comes first."""

    def __init__(self, features: Sequence[str] | None = None, rmcp_name: str = "rmcp") -> None:
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.executed: list[tuple[str, dict[str, Any]]] = []
        self.script: dict[str, list[Outcome]] = {}
        self.flips: list[int] = []
        self.lost_chunks: list[int] = []
        self.release = asyncio.Event()
        self.napping = asyncio.Event()
        self._answers: dict[str, types.CallToolResult] = {}
        self._bodies: dict[str, bytes] = {}
        self.server = _Declaring("shop", on_list_tools=self._list, on_call_tool=self._call)
        self.server.features, self.server.rmcp_name = features, rmcp_name
        self.server.middleware.append(self._record)
        if features is not None:
            self.server.add_request_handler("rmcp/chunk", _ChunkParams, self._chunk)

    def asked(self, method: str) -> list[Mapping[str, Any]]:
        """The parameters of every request of that method, as they came."""
        return [params for name, params in self.requests if name == method]

    async def _record(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        self.requests.append((ctx.method, json.loads(json.dumps(ctx.params or {}, default=str))))
        return await call_next(ctx)

    async def _list(self, _: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Two pages, so that a client has to follow a cursor."""
        names = list(TOOLS)
        second = params is not None and params.cursor == "2"
        shown = names[3:] if second else names[:3]
        tools = [
            types.Tool(name=name, input_schema={"type": "object"}, annotations=TOOLS[name]) for name in shown
        ]
        return types.ListToolsResult(tools=tools, next_cursor=None if second else "2")

    async def _call(self, _: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        rmcp: dict[str, Any] = dict[str, Any](params.meta or {}).get(self.server.rmcp_name) or {}
        key = rmcp.get("idempotency_key") if "idempotency" in (self.server.features or ()) else None
        if key in self._answers:
            return self._with_receipt(self._answers[key], rmcp, duplicate=True)
        if outcomes := self.script.get(params.name):
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        self.executed.append((params.name, params.arguments or {}))
        if params.name == "nap":
            self.napping.set()
            await self.release.wait()
        answer = self._answer(params.name, params.arguments or {})
        if key is not None:
            self._answers[key] = answer
        return self._with_receipt(answer, rmcp, duplicate=False)

    def _answer(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        if tool == "seen":
            return text(json.dumps([list(request) for request in self.requests]))
        if tool == "big":
            return self._announced(
                json.dumps({"content": [{"type": "text", "text": "é" * arguments["size"]}]})
            )
        return text(f"{tool} {len(self.executed)}")

    def _announced(self, body: str) -> types.CallToolResult:
        whole = body.encode()
        if "chunking" not in (self.server.features or ()):
            return types.CallToolResult.model_validate_json(whole)
        digest = hashlib.sha256(whole).hexdigest()
        self._bodies[digest] = whole
        announced = {
            "transfer_id": digest,
            "size": len(whole),
            "chunk_size": CHUNK_BYTES,
            "total": -(-len(whole) // CHUNK_BYTES),
            "sha256": digest,
        }
        answer = text("in chunks")
        answer.meta = {self.server.rmcp_name: {"chunked": announced}}
        return answer

    def _with_receipt(
        self, answer: types.CallToolResult, rmcp: Mapping[str, Any], *, duplicate: bool
    ) -> types.CallToolResult:
        if self.server.features is None or not rmcp:
            return answer
        told = {"ack": True, "processed": True, "duplicate": duplicate, "request_id": rmcp["request_id"]}
        before = (answer.meta or {}).get(self.server.rmcp_name) or {}
        return answer.model_copy(update={"meta": {self.server.rmcp_name: {**before, **told}}})

    async def _chunk(self, _: Any, params: "_ChunkParams") -> dict[str, Any]:
        if params.index in self.lost_chunks:
            self.lost_chunks.remove(params.index)
            raise MCPError(-32000, "the connection was lost")
        whole = self._bodies[params.transfer_id]
        data = whole[params.index * CHUNK_BYTES : (params.index + 1) * CHUNK_BYTES]
        told = hashlib.sha256(data).hexdigest()
        if params.index in self.flips:
            self.flips.remove(params.index)
            data = bytes([data[0] ^ 1]) + data[1:]
        total = -(-len(whole) // CHUNK_BYTES)
        return {"index": params.index, "total": total, "sha256": told, "data": b64encode(data).decode()}


class _ChunkParams(types.RequestParams):
    # The SDK's models would have it transferId.
    transfer_id: str = Field(alias="transfer_id")
    index: int


def text(words: str, *, is_error: bool = False, **meta: Any) -> types.CallToolResult:
    """A result of one text."""
    content = types.TextContent(type="text", text=words)
    return types.CallToolResult(content=[content], is_error=is_error, _meta=meta or None)


def gateway_error(
    code: str, effect: str, *, retryable: bool, words: str = "no", **more: Any
) -> types.CallToolResult:
    """What a gateway answers instead of a tool."""
    told = {"code": code, "effect": effect, "retryable": retryable, **more}
    return text(words, is_error=True, **{"io.headgate/error": told})


def temporary(words: str = "busy") -> MCPError:
    """A failure after which nothing has happened."""
    return MCPError(1004, words)


def main() -> None:
    """Serve on stdio, or on a port of this machine, until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rmcp", action="store_true")
    parser.set_defaults(era="both")
    options = parser.parse_args()
    asyncio.run(serve(Shop(FEATURES if options.rmcp else None).server, options))
