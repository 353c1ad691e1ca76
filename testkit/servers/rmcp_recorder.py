"""A server on stdio of either era, with rmcp or without, that writes down every line it is sent.

rmcp_recorder legacy|modern plain|NAME JOURNAL      NAME is what it calls rmcp
"""

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from testkit.servers import jsonrpc

FEATURES = ["ack", "idempotency", "chunking", "clairvoyance"]
PART_BYTES = 700_000
TOOLS = ("pay", "refuse", "much")


def main() -> None:
    """Answer each request, after it has been written down."""
    era, name, journal = sys.argv[1:4]
    server = RmcpRecorder(modern=era == "modern", name="" if name == "plain" else name)
    with Path(journal).open("ab", buffering=0) as file:
        jsonrpc.serve_stdio(server.answer, each=file.write)


class RmcpRecorder:
    """Answers with what rmcp says of a call, whole or in parts."""

    def __init__(self, *, modern: bool, name: str) -> None:
        """`name` is what it calls rmcp; empty for a server that does not speak it."""
        self._modern = modern
        self._name = name
        self._speaks = bool(name)
        self._capabilities: dict[str, Any] = {"tools": {}}
        if name:
            self._capabilities["experimental"] = {name: {"version": "0.1.0", "features": FEATURES}}
        self._whole = b""

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The result or the error, as it stands in the message."""
        params = message.get("params", {})
        match message["method"]:
            case "server/discover" if self._modern:
                return self._result(
                    supportedVersions=[jsonrpc.STATELESS_VERSION], capabilities=self._capabilities
                )
            case "initialize" if not self._modern:
                return jsonrpc.greeting("recorder", params["protocolVersion"], **self._capabilities)
            case "tools/list":
                return self._result(**jsonrpc.tools(*TOOLS)["result"])
            case "tools/call":
                return self._called(params["name"], params.get("arguments", {}))
            case "rmcp/chunk":
                return self._part(params["index"])
            case "ping" | "rmcp/chunk_done":
                return self._result()
        return jsonrpc.unknown_method(message)

    def _called(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "refuse" and self._speaks:
            return self._said({"ack": False, "error_code": "CONFLICT"})
        if name == "much":
            return self._much(arguments["size"])
        return self._said({"ack": True, "processed": True, "attempts": 42})

    def _said(self, rmcp: dict[str, Any]) -> dict[str, Any]:
        meta = {"of": "the server", **({self._name: rmcp} if self._speaks else {})}
        return self._result(content=[{"type": "text", "text": "done"}], _meta=meta)

    def _much(self, size: int) -> dict[str, Any]:
        result = self._result(content=[{"type": "text", "text": "0123456789" * (size // 10)}])
        if not self._speaks:
            return result
        self._whole = json.dumps(result["result"]).encode()
        chunked = {
            "transfer_id": "t-1",
            "size": len(self._whole),
            "chunk_size": PART_BYTES,
            "total": -(-len(self._whole) // PART_BYTES),
            "sha256": hashlib.sha256(self._whole).hexdigest(),
        }
        return self._said({"ack": True, "chunked": chunked})

    def _part(self, index: int) -> dict[str, Any]:
        data = self._whole[index * PART_BYTES : (index + 1) * PART_BYTES]
        total = -(-len(self._whole) // PART_BYTES)
        return self._result(
            transfer_id="t-1",
            index=index,
            total=total,
            sha256=hashlib.sha256(data).hexdigest(),
            data=base64.b64encode(data).decode(),
        )

    def _result(self, **members: Any) -> dict[str, Any]:
        return {"result": {"resultType": "complete", **members} if self._modern else members}
