"""An MCP server on streamable HTTP: a bare ASGI callable under uvicorn that answers with prepared bytes."""

import argparse
from typing import Final

import msgspec
import uvicorn
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

from testkit.servers.prepared_answers import Answers, Envelope

_SESSION: Final = (b"mcp-session-id", b"bench-session")
_envelopes: Final = msgspec.json.Decoder(Envelope)


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tools", type=int, default=10)
    parser.add_argument("--modern", action="store_true", help="also speak 2026-07-28")
    options = parser.parse_args()
    run(application(Answers(tools=options.tools, modern=options.modern)), options.port)


def run(app: ASGI3Application, port: int) -> None:
    """Serve an application on that port until terminated, at the least cost per request."""
    uvicorn.run(
        app,
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        date_header=False,
        server_header=False,
    )


def application(answers: Answers) -> ASGI3Application:
    """The ASGI callable around the prepared answers."""

    async def serve(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            # DELETE ends a session that we never kept; GET asks for a stream that we do not offer.
            ended = scope["type"] == "http" and scope["method"] == "DELETE"
            return await send_response(send, 200 if ended else 405, ())
        message = _envelopes.decode(await read_body(receive))
        if not message.id:
            return await send_response(send, 202, ())
        result = answers.result(message)
        if result is None:
            error = b',"error":{"code":-32601,"message":"unknown"}}'
            return await send_response(send, 200, (b'{"jsonrpc":"2.0","id":', bytes(message.id), error))
        pieces = (b'{"jsonrpc":"2.0","id":', bytes(message.id), b',"result":', result, b"}")
        # A session id is handed out and never asked for: a client may keep sessions or not.
        await send_response(send, 200, pieces, session=message.method == "initialize")

    return serve


async def read_body(receive: ASGIReceiveCallable) -> bytes:
    """The whole body of a request."""
    body = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return body
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body


async def send_response(
    send: ASGISendCallable, status: int, pieces: tuple[bytes, ...], *, session: bool = False
) -> None:
    """Send a whole response."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % sum(map(len, pieces))),
    ]
    if session:
        headers.append(_SESSION)
    await send({"type": "http.response.start", "status": status, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": False})


if __name__ == "__main__":
    main()
