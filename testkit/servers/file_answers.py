"""A server that answers with the bytes of files, whatever they are.

    file_answers DIRECTORY stdio|http   each method and each tool has a file
    file_answers                        the tool `dig` answers with the file that its argument names

`DIRECTORY/tools_list` is the result of tools/list, `DIRECTORY/call_NAME` that of a tool. What stands in
`DIRECTORY/before_NAME` is written before it, one message a line. Without a file the method is unknown.
"""

import json
import sys
from pathlib import Path

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import Message

DIG = {"name": "dig", "inputSchema": {"type": "object", "properties": {"file": {"type": "string"}}}}


def main() -> None:
    """Serve as the arguments say."""
    if len(sys.argv) == 1:
        jsonrpc.serve_stdio(answer_by_argument)
        return
    directory, transport = Path(sys.argv[1]), sys.argv[2]
    if transport == "stdio":
        jsonrpc.serve_stdio(lambda message: answer_by_method(directory, message))
    else:
        serve_http(directory)


def answer_by_argument(message: Message) -> jsonrpc.Answer:
    """The result that stands in the file."""
    if message["method"] == "tools/call":
        return b'"result":' + Path(message["params"]["arguments"]["file"]).read_bytes()
    return jsonrpc.answer_lifecycle(message, "file-answers", {"result": {"tools": [DIG]}})


def answer_by_method(directory: Path, message: Message) -> jsonrpc.Answer:
    """The result that stands in the file of the method or the tool, after what comes before it."""
    jsonrpc.write(before(directory, message))
    return result(directory, message)


def result(directory: Path, message: Message) -> Message | bytes:
    """The result of the file."""
    name: str = message["method"].replace("/", "_")
    if name == "tools_call":
        name = f"call_{message['params']['name']}"
    file = directory / name
    if not file.exists():
        return jsonrpc.error(jsonrpc.METHOD_NOT_FOUND, "Method not found")
    return b'"result":' + file.read_bytes()


def before(directory: Path, message: Message) -> bytes:
    """What comes before the answer to a call of a tool."""
    if message["method"] != "tools/call":
        return b""
    params = message["params"]
    file = directory / f"before_{params['name']}"
    token = json.dumps(params.get("_meta", {}).get("progressToken")).encode()
    return file.read_bytes().replace(b"TOKEN", token) if file.exists() else b""


def serve_http(directory: Path) -> None:
    """Answer with JSON, or with an event stream where something comes before the answer."""
    from testkit.servers import jsonrpc_http  # noqa: PLC0415 - a start on stdio does not pay for it

    class FileHandler(jsonrpc_http.HttpHandler):
        def respond(self, message: Message) -> None:
            body = jsonrpc.encode(message["id"], result(directory, message))
            early = before(directory, message)
            if not early:
                self.send_body(200, body)
                return
            events = b"".join(b"data: " + line + b"\n\n" for line in [*early.splitlines(), body])
            self.send_body(200, events, "text/event-stream")

    jsonrpc_http.serve_http(FileHandler)
