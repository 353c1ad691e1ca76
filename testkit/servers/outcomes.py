"""A server whose calls end as their arguments, a file or its options say; it notes each call that it begins.

outcomes by-argument JOURNAL    `outcome`: an error, a failed result, silence, the end of the process
outcomes by-file DIRECTORY      the file of each tool says: refuse, die before, die after, wait
outcomes dying                  ends once at the first call that names a file with `until`
outcomes member                 the argument `member` is the text of the result or the error
outcomes silent JOURNAL         lists one of everything and never answers a request about it
"""

import json
import os
import sys
from pathlib import Path

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import Answer, Message

READ_ONLY = {"readOnlyHint": True}
ERRORS = {"error": -32000, "internal": -32603, "timeout_like": -32001, "refused": -32602, "unknown": -32601}


def main() -> None:
    """Serve as the first argument says."""
    kind, *rest = sys.argv[1:]
    server = SERVERS[kind](*map(Path, rest))
    jsonrpc.serve_stdio(server.answer)


class OutcomeServer:
    """The handshake and the list; a subclass answers calls."""

    tools: tuple[tuple[str, Message], ...] = ()

    def answer(self, message: Message) -> Answer:
        """The answer to one request."""
        if message["method"] == "tools/call":
            return self.call(message["params"]["name"], message["params"].get("arguments") or {})
        return jsonrpc.answer_lifecycle(message, "outcomes", self._listed())

    def call(self, name: str, arguments: Message) -> Answer:
        """The answer to one call."""
        raise NotImplementedError

    def _listed(self) -> Message:
        schema = {"type": "object"}
        listed = [
            {"name": name, "inputSchema": schema, **({"annotations": hints} if hints else {})}
            for name, hints in self.tools
        ]
        return {"result": {"tools": listed}}


class ByArgument(OutcomeServer):
    """Appends a line to its journal for every call that it begins, before anything else happens."""

    tools = (("pay", {}), ("look", READ_ONLY), ("put", {"idempotentHint": True}))

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def call(self, name: str, arguments: Message) -> Answer:
        _append(self._journal, json.dumps([name, arguments]))
        outcome = arguments.get("outcome", "result")
        if outcome == "die_then_refused":
            # The first time it ends without an answer.
            first = self._journal.with_name(f"died {arguments['order']}")
            outcome = "refused" if first.exists() else "die"
            first.touch()
        if outcome == "die":
            os._exit(1)
        if outcome == "slow":
            return None
        if outcome in ERRORS:
            words = arguments.get("words", f"no: {outcome}")
            return jsonrpc.error(ERRORS[outcome], words, **arguments.get("more", {}))
        return jsonrpc.text(arguments.get("words", "done"), isError=outcome == "is_error")


class ByFile(OutcomeServer):
    """The directory has the journal of what was carried out, and a file for each tool that misbehaves."""

    tools = (("book", {}), ("cancel", {}), ("ship", {}))

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def call(self, name: str, arguments: Message) -> Answer:
        script = self._directory / name
        order = script.read_text() if script.exists() else "do"
        if order.startswith("refuse"):
            return jsonrpc.text(order, isError=True)
        if order == "die before":
            os._exit(1)
        _append(self._directory / "journal", name)
        if order == "die after":
            os._exit(1)
        jsonrpc.wait_while(lambda: order == "wait" and script.exists())
        return jsonrpc.text(json.dumps({"id": name}))


class Dying(OutcomeServer):
    """Answers with its process id, with so many `letters`, or with the failure `fails`."""

    tools = (("look", READ_ONLY), ("pay", {}))

    def call(self, name: str, arguments: Message) -> Answer:
        until = arguments.get("until")
        if until is not None and not os.path.exists(until):
            with open(until, "x", encoding="utf-8"):
                os._exit(1)
        words = arguments.get("fails") or "é" * arguments.get("letters", 0) or str(os.getpid())
        return jsonrpc.text(words, isError="fails" in arguments)


class ByMember(OutcomeServer):
    """Answers with any text, JSON or not."""

    tools = (("answer", {}),)

    def call(self, name: str, arguments: Message) -> Answer:
        member: str = arguments["member"]
        return member.encode()


class Silent(OutcomeServer):
    """Notes each request about what it lists."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def answer(self, message: Message) -> Answer:
        method = message["method"]
        if method == "server/discover":
            return jsonrpc.unknown_method(message)
        if method in LISTED_ONCE:
            return {"result": LISTED_ONCE[method]}
        _append(self._journal, f"held {method}")
        return None


LISTED_ONCE: dict[str, Message] = {
    "ping": {},
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {
            "tools": {},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
            "logging": {},
        },
        "serverInfo": {"name": "silent", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "hold", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
    "resources/list": {"resources": [{"uri": f"held://{n}", "name": str(n)} for n in range(5)]},
    "resources/templates/list": {"resourceTemplates": []},
}
SERVERS: dict[str, type[OutcomeServer]] = {
    "by-argument": ByArgument,
    "by-file": ByFile,
    "dying": Dying,
    "member": ByMember,
    "silent": Silent,
}


def _append(journal: Path, line: str) -> None:
    with journal.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
