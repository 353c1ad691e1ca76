"""A streamable-HTTP MCP server of either era that writes down every call that it carries out."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from testkit.servers.audit_log import DONE_FAULTS, LISTED, UNDONE_FAULTS, AuditedCall, AuditLog
from testkit.servers.misbehaving_http import HttpExchange, MisbehavingHttpServer


class AuditedHttpServer(MisbehavingHttpServer):
    """The server; it finishes what it has begun, even after the client has left."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._deeds = AuditLog(options.deeds)

    def listed(self) -> list[dict[str, Any]]:
        """Tools of every class."""
        return LISTED

    async def call(self, exchange: HttpExchange) -> None:
        """Do what is asked, once for each call that arrives."""
        arguments = exchange.arguments
        key = exchange.headers.get("idempotency-key") or str(arguments.get("idempotency_key", ""))
        if self.options.busy:
            self._deeds.arrive(exchange.params["name"], arguments, key)
            await _refuse(exchange, self.options.busy)
            return
        deed = self._deeds.arrive(exchange.params["name"], arguments, key)
        await asyncio.sleep(deed.before_seconds)
        if deed.fault in UNDONE_FAULTS:
            await _lose(exchange, deed, b"")
            return
        message = exchange.result(self._deeds.carry_out(deed))
        await asyncio.sleep(deed.after_seconds)
        if deed.fault in DONE_FAULTS:
            await _lose(exchange, deed, message)
        else:
            await exchange.send(message)


async def _lose(exchange: HttpExchange, deed: AuditedCall, message: bytes) -> None:
    match deed.fault:
        case "deaf" | "silent":
            await exchange.reader.read(1)
        case "refuse":
            await exchange.send(exchange.refusal(-32602, "not like this"))
        case "status" | "status_done":
            await _refuse(exchange, int(deed.arguments.get("status", 503)))
        case "garbage":
            await exchange.send(message.replace(b'"nonce', b'\xff"nonce'))
        case "half":
            exchange.head(200, "application/json", {"Content-Length": str(len(message))})
            exchange.writer.write(message[: len(message) // 2])
            await exchange.writer.drain()
            exchange.writer.close()
        case _:
            exchange.reset()


async def _refuse(exchange: HttpExchange, status: int) -> None:
    after = exchange.arguments.get("retry_after")
    headers = {} if after is None else {"Retry_After": str(after)}
    await exchange.send(b"not now", status, "text/plain", **headers)


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deeds", type=Path, help="the file of what was done")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stateless", action="store_true", help="speak the stateless era")
    parser.add_argument("--busy", type=int, metavar="STATUS", help="answer every call with that")
    parser.set_defaults(record=None, tools=None, hang=False)
    asyncio.run(AuditedHttpServer(parser.parse_args()).serve())
