"""An MCP server whose tools answer with files: `--port N --results DIR`.

The tool NAME answers with NAME.json, a whole result; the tools of other benchmarks are there too.
"""

import argparse
from pathlib import Path

import msgspec

from testkit.servers.prepared_answers import Answers, Envelope
from testkit.servers.prepared_http import application, run


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    results = {file.stem: file.read_bytes() for file in options.results.glob("*.json")}
    run(application(Stored(results)), options.port)


class Stored(Answers):
    """Answers with what was stored under the name of a tool."""

    def __init__(self, results: dict[str, bytes]) -> None:
        super().__init__(tools=3, modern=False)
        self._results = results

    def result(self, message: Envelope) -> bytes | None:
        """The result to send back, or None when the method or the tool is unknown."""
        if message.method == "tools/call":
            name = msgspec.json.decode(message.params, type=_Named).name
            if name in self._results:
                return self._results[name]
        prepared = super().result(message)
        if message.method == "tools/list" and prepared is not None:
            return self._with_own(prepared)
        return prepared

    def _with_own(self, listing: bytes) -> bytes:
        listed = msgspec.json.decode(listing)
        schema = {"type": "object"}
        listed["tools"] += [
            {"name": name, "description": f"Gives {name}.", "inputSchema": schema} for name in self._results
        ]
        return msgspec.json.encode(listed)


class _Named(msgspec.Struct):
    name: str = ""
