"""What both benchmark upstreams answer: prepared results, the listing and the two handshakes."""

import json
from typing import Final

import msgspec

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"

# The size is that of the whole `result` object in bytes, not of the text inside it.
PAYLOADS: Final = {"payload_200": 200, "payload_100k": 100_000, "payload_10m": 10_000_000}


class Envelope(msgspec.Struct):
    """The fields of a message that an upstream acts on; an empty id means a notification."""

    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Name(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


_name_decoder: Final = msgspec.json.Decoder(_Name)


class Answers:
    """The prepared answers of one upstream."""

    def __init__(self, *, tools: int, modern: bool) -> None:
        self._payloads = {name: payload_result(size) for name, size in PAYLOADS.items()}
        self._fixed = {
            "initialize": _encode(_identity() | {"protocolVersion": LEGACY, "capabilities": {"tools": {}}}),
            "ping": b"{}",
            "tools/list": _encode(_listing(tools, modern=modern)),
        }
        if modern:
            self._fixed["server/discover"] = _encode(_discovery())

    def result(self, message: Envelope) -> bytes | None:
        """The result to send back, or None when the method or the tool is unknown."""
        if message.method != "tools/call":
            return self._fixed.get(message.method)
        call = _name_decoder.decode(message.params)
        payload = self._payloads.get(call.name)
        if payload is not None:
            return payload
        return _text_result(bytes(call.arguments).decode()) if call.name == "echo" else None


def payload_result(size: int) -> bytes:
    """A tool result of exactly `size` bytes whose text looks like rows of a report.

    Quotes and line breaks are escaped in it as in real results; plain letters would flatter parsers.
    """
    empty = len(_text_result(""))
    row = 'row {:07d}: "status" ok, latency 12.5 ms, host node-7.example\n'
    wanted = size - empty
    pieces: list[str] = []
    length = 0
    while length < wanted:
        piece = row.format(len(pieces))
        pieces.append(piece)
        length += len(json.dumps(piece)) - 2
    text = "".join(pieces)
    while (excess := len(json.dumps(text)) - 2 - wanted) > 0:
        text = text[:-excess] if excess < len(text) else ""
    return _text_result(text + "." * (wanted - (len(json.dumps(text)) - 2)))


def _text_result(text: str) -> bytes:
    return _encode({"content": [{"type": "text", "text": text}], "isError": False})


def _identity() -> dict[str, object]:
    return {"serverInfo": {"name": "bench-upstream", "version": "1.0"}}


def _discovery() -> dict[str, object]:
    return {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench-upstream", "version": "1.0"}},
    }


def _listing(count: int, *, modern: bool) -> dict[str, object]:
    names = [*PAYLOADS, "echo"]
    names += [f"filler_{number:04d}" for number in range(count - len(names))]
    listing: dict[str, object] = {"tools": [_tool(name) for name in names]}
    if modern:
        listing |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return listing


def _tool(name: str) -> dict[str, object]:
    return {
        "name": name,
        "description": f"The tool {name} of the benchmark's upstream answers at once with prepared bytes.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where to look, relative to the root"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
                "order": {"type": "string", "enum": ["oldest", "newest", "largest"]},
            },
        },
    }


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)
