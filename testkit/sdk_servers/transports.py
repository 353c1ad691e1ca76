"""Serves a server on the official SDK over stdio or HTTP, to clients of one era or of both."""

import argparse
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# The eras are `legacy`, with a handshake, `modern`, and `both`.


def server_options() -> argparse.ArgumentParser:
    """The options of every server that speaks one era and keeps a journal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["legacy", "modern"], required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--transport", choices=["stdio", "http"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    return parser


async def serve(server: Server[Any], options: argparse.Namespace) -> None:
    """Serve on the transport that the options name; over HTTP the port is printed first."""
    if options.transport == "stdio":
        await serve_stdio(server, options.era)
    else:
        await serve_http(only(options.era, server.streamable_http_app()), options.port)


async def serve_stdio(server: Server[Any], era: str) -> None:
    """Serve one client on standard input and output."""
    async with stdio_server() as (reading, writing):
        if era == "legacy":
            # The handshake-only loop: `server/discover` is an unknown method to it.
            async with server.lifespan(server) as state:
                await serve_loop(server, reading, writing, lifespan_state=state)
        else:
            await server.run(reading, writing, server.create_initialization_options())


async def serve_http(app: ASGIApp, port: int) -> None:
    """Serve on a port of this machine, which is printed first."""
    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    web = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    await web.serve([listener])


def _bad_request(version: str) -> JSONResponse:
    error = {"code": -32600, "message": f"Bad Request: Unsupported protocol version: {version!r}"}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)


def only(era: str, app: ASGIApp, refusal: Callable[[str], JSONResponse] = _bad_request) -> ASGIApp:
    """Refuse requests of the other era, as servers written before or after it do."""

    async def pinned(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or era == "both":
            return await app(scope, receive, send)
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode("latin-1")
        if (version == "" or version in HANDSHAKE_PROTOCOL_VERSIONS) == (era == "legacy"):
            return await app(scope, receive, send)
        return await refusal(version)(scope, receive, send)

    return pinned


def refuse_initialize(server: Server[Any], era: str) -> None:
    """Let a server of the modern era know no `initialize`."""

    async def refuse(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize" and era == "modern":
            raise MCPError(code=-32601, message="Method not found", data="initialize")
        return await call_next(ctx)

    server.middleware.insert(0, refuse)
