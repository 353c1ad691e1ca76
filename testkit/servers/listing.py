"""A server that lists what a file says, unchanged, and answers a call with its name or its arguments.

listing FILE [--label NAME] [--answer names|line|arguments] [--wait-for FILE] [--changes]
listing DIRECTORY --http        every `NAME.json` of a directory at `/NAME`
"""

import argparse
import json
from pathlib import Path

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import Message

CHANGE = {"method": "notifications/tools/list_changed"}


def main() -> None:
    """Serve the tools of a file, once the file to wait for exists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listing", type=Path, help="read anew for each list; with --http a directory of them")
    parser.add_argument("--label", default="listing")
    parser.add_argument("--answer", choices=tuple(ANSWERS), default="names")
    parser.add_argument("--wait-for", type=Path)
    parser.add_argument("--changes", action="store_true", help="can say that its tools have changed")
    parser.add_argument("--http", action="store_true")
    options = parser.parse_args()
    if options.http:
        serve_http(options.listing)
        return
    if options.wait_for is not None:
        jsonrpc.wait_for_file(options.wait_for)
    jsonrpc.serve_stdio(
        Listing(options.label, options.listing, options.answer, changes=options.changes).answer
    )


class Listing:
    """The server behind one connection."""

    def __init__(self, label: str, listing: Path, answer: str, *, changes: bool) -> None:
        self._label = label
        self._listing = listing
        self._answer = ANSWERS[answer]
        self._capabilities = {"tools": {"listChanged": True} if changes else {}}

    def answer(self, message: Message) -> jsonrpc.Answer:
        """The answer to one request, after the notification that it leads to."""
        method = message["method"]
        if method == "tools/list":
            return b'"result":' + self._listing.read_bytes()
        if method == "tools/call":
            if message["params"]["name"] == "restock":
                jsonrpc.send(CHANGE)
            return self._answer(self._label, message["params"])
        if method == "initialize" and "sampling" in message["params"]["capabilities"]:
            # Clients that can be asked for a sample are shown those of FILE.more, if there is such a file.
            more = self._listing.with_suffix(".more")
            self._listing = more if more.exists() else self._listing
        return jsonrpc.answer_lifecycle(message, self._label, {}, **self._capabilities)


def serve_http(directory: Path) -> None:
    """Answer for the server that the path names."""
    from testkit.servers import jsonrpc_http  # noqa: PLC0415 - a start on stdio does not pay for it

    class ListingHandler(jsonrpc_http.HttpHandler):
        def respond(self, message: Message) -> None:
            label = self.path.removeprefix("/")
            server = Listing(label, directory / f"{label}.json", "names", changes=False)
            answer = server.answer(message)
            assert answer is not None
            self.send_body(200, jsonrpc.encode(message["id"], answer))

    jsonrpc_http.serve_http(ListingHandler)


def _names(label: str, params: Message) -> Message:
    # Two texts, because either name may hold any character that could join them.
    return jsonrpc.text(label, params["name"])


def _line(label: str, params: Message) -> Message:
    return jsonrpc.text(f"{label}: {params['name']}")


def _arguments(_: str, params: Message) -> Message:
    """Two tools refuse whatever they get, each in its own way; the others say what they got."""
    if params["name"] == "refuse_by_error":
        return jsonrpc.error(jsonrpc.INVALID_PARAMS, "Invalid params: amount is wrong")
    if params["name"] == "refuse_by_result":
        return jsonrpc.text("Input validation error: amount is wrong", isError=True)
    return jsonrpc.text(json.dumps(params.get("arguments")), isError=False)


ANSWERS = {"names": _names, "line": _line, "arguments": _arguments}
