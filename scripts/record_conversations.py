"""Records conversations with real MCP servers, for tests/replay to play to a gate.

    python scripts/record_conversations.py --scratch DIR [--only SERVER ...] [--output FILE]

Each server of tests/replay/packages.json is installed under DIR, started there over stdio, and asked
everything that it offers to a client without capabilities. What it writes is kept line by line, as it wrote
it, but for the paths, addresses and names of the machine. Needs npm, uv and git.
"""

import argparse
import contextlib
import getpass
import json
import lzma
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "tests" / "replay" / "packages.json"
OUTPUT = ROOT / "tests" / "data" / "conversations.jsonl.xz"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
RECORDER = {"name": "recorder", "version": "1"}
LISTS = {
    "tools": ["tools/list"],
    "prompts": ["prompts/list"],
    "resources": ["resources/list", "resources/templates/list"],
}
MEMBERS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
# Large imports on a busy machine; nothing here answers later than that.
ANSWER_SECONDS = 90.0
# A server of the handshake era may say nothing at all to the first question of the other.
DISCOVER_SECONDS = 45.0
# Long enough for what a server says after its answer.
SETTLE_SECONDS = 0.3
# Some servers look around after the handshake, and then say that their lists have changed.
TOLD_SECONDS = 2.0
INSTALL_SECONDS = 600
MOST_BYTES = 300_000
MOST_SAMPLES = 2
COMMON_PLACES = {"/usr/bin", "/usr/local/bin", "/bin/bash", "/bin/sh", "C.UTF-8"}


class Refused(RuntimeError):
    """A conversation that is not worth keeping, and why."""


class Server:
    """One running server; every line that it writes is kept with the request before it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._next_id = 0
        self.envelope: dict[str, Any] = {}
        self.exchanges: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, method: str, params: dict[str, Any], seconds: float = ANSWER_SECONDS) -> Any:
        """The answer as a message, or None if there was none in time."""
        self._next_id += 1
        lines: list[str] = []
        self.exchanges.append({"method": method, "params": params, "lines": lines})
        meta = dict(self.envelope)
        if method == "tools/call":
            meta["progressToken"] = self._next_id
        sent = params | {"_meta": meta} if meta else params
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": sent})
        answer = self._wait_for(self._next_id, lines, time.monotonic() + seconds)
        self._settle(lines)
        return answer

    def tell(self, method: str) -> None:
        """Tell it something; what it says to that belongs to the last request."""
        self._write({"jsonrpc": "2.0", "method": method})
        self._settle(self.exchanges[-1]["lines"], TOLD_SECONDS)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused("it has ended") from None

    def _wait_for(self, wanted: int, lines: list[str], give_up_at: float) -> Any:
        while (left := give_up_at - time.monotonic()) > 0:
            try:
                message = self._keep(self._lines.get(timeout=left), lines)
            except queue.Empty:
                return None
            if message.get("id") == wanted and "method" not in message:
                return message
        return None

    def _settle(self, lines: list[str], seconds: float = SETTLE_SECONDS) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._keep(self._lines.get(timeout=seconds), lines)

    def _keep(self, line: str | None, lines: list[str]) -> dict[str, Any]:
        if line is None:
            raise Refused("it closed its output")
        lines.append(line)
        try:
            message = json.loads(line)
        except ValueError:
            return {}
        if not isinstance(message, dict):
            return {}
        if "method" in message and "id" in message:
            raise Refused(f"it asked for {message['method']}, which nobody declared")
        return message

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode().rstrip("\r\n"))
        self._lines.put(None)


def converse(server: Server, asks: list[list[Any]]) -> dict[str, Any]:
    """Agree on an era, ask for every list, then what the plan says, then samples of what was listed."""
    era, hello = negotiate(server)
    capabilities = hello.get("capabilities", {})
    listed: dict[str, list[dict[str, Any]]] = {}
    for capability, methods in LISTS.items():
        for method in methods if capability in capabilities else []:
            listed[method] = list(pages(server, method))
    succeeded = False
    for method, params in [*asks, *samples(listed, completes="completions" in capabilities)]:
        answer = server.ask(method, params)
        if answer is None:
            raise Refused(f"{method} {json.dumps(params)[:80]} was not answered")
        result = answer.get("result")
        failed = result is None or result.get("isError")
        if failed:
            print(f"    {method} {json.dumps(params)[:80]} failed: {json.dumps(answer)[:300]}")
        succeeded |= method == "tools/call" and not failed
    if not succeeded:
        raise Refused("no call succeeded")
    return {"era": era, "exchanges": server.exchanges}


def negotiate(server: Server) -> tuple[str, dict[str, Any]]:
    """`server/discover` first, then `initialize`, as the gateway asks."""
    server.envelope = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": RECORDER,
    }
    answer = server.ask("server/discover", {}, DISCOVER_SECONDS)
    if answer and STATELESS in answer.get("result", {}).get("supportedVersions", []):
        return "stateless", answer["result"]
    server.envelope = {}
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": RECORDER}
    answer = server.ask("initialize", hello)
    if not answer or "result" not in answer:
        raise Refused(f"it did not shake hands: {answer}")
    server.tell("notifications/initialized")
    return "handshake", answer["result"]


def pages(server: Server, method: str) -> Iterator[dict[str, Any]]:
    params: dict[str, Any] = {}
    while True:
        answer = server.ask(method, params)
        if not answer or "result" not in answer:
            print(f"    {method} failed: {json.dumps(answer)[:300]}")
            return
        yield from answer["result"].get(MEMBERS[method], [])
        if not answer["result"].get("nextCursor"):
            return
        params = {"cursor": answer["result"]["nextCursor"]}


def samples(
    listed: dict[str, list[dict[str, Any]]], *, completes: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Some of what was listed, fetched: prompts, resources, and the completion of the first argument."""
    prompts, templates = listed.get("prompts/list", []), listed.get("resources/templates/list", [])
    for prompt in prompts[:MOST_SAMPLES]:
        wanted = [argument["name"] for argument in prompt.get("arguments") or [] if argument.get("required")]
        yield "prompts/get", {"name": prompt["name"], "arguments": dict.fromkeys(wanted, "2")}
    for resource in listed.get("resources/list", [])[:MOST_SAMPLES]:
        yield "resources/read", {"uri": resource["uri"]}
    if not completes:
        return
    for prompt in [prompt for prompt in prompts if prompt.get("arguments")][:1]:
        ref = {"type": "ref/prompt", "name": prompt["name"]}
        argument = {"name": prompt["arguments"][0]["name"], "value": ""}
        yield "completion/complete", {"ref": ref, "argument": argument}
    for template in templates[:1]:
        names = re.findall(r"\{[+#./;?&]?(\w+)", template["uriTemplate"])
        ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
        for name in names[:1]:
            yield "completion/complete", {"ref": ref, "argument": {"name": name, "value": ""}}


def install(package: str, extra: list[str], place: Path) -> Path:
    """Install the package in a place of its own, once; returns the directory of its commands."""
    source, wanted = package.split(" ")
    done = place / "installed"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        if source == "npm":
            (place / "package.json").write_text('{"private":true}', encoding="utf-8")
            flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            command = ["npm", "install", *flags, wanted, *extra]
        else:
            subprocess.run(["uv", "venv", "-q", "--clear", str(place)], check=True, timeout=INSTALL_SECONDS)
            command = [
                "uv",
                "pip",
                "install",
                "-q",
                "--python",
                str(place / "bin" / "python"),
                wanted,
                *extra,
            ]
        subprocess.run(command, cwd=place, check=True, timeout=INSTALL_SECONDS)
        done.touch()
    return place / ("node_modules/.bin" if source == "npm" else "bin")


def licence(package: str, place: Path) -> str:
    """What the package says about its licence."""
    source, wanted = package.split(" ")
    if source == "npm":
        root = place / "node_modules" / wanted.rpartition("@")[0]
        stated = str(json.loads((root / "package.json").read_text(encoding="utf-8")).get("license", ""))
        return (
            stated if stated and not stated.startswith("SEE") else first_line(root) or stated or "not stated"
        )
    name = re.sub(r"[-_.]+", "_", wanted.partition("==")[0]).lower()
    for root in place.glob("lib/*/site-packages/*.dist-info"):
        if re.sub(r"[-_.]+", "_", root.name.partition("-")[0]).lower() == name:
            return (
                stated_licence((root / "METADATA").read_text(encoding="utf-8"))
                or first_line(root)
                or "not stated"
            )
    return "not stated"


def stated_licence(metadata: str) -> str:
    fields = re.findall(r"^(License-Expression|License|Classifier): (.+)$", metadata, re.MULTILINE)
    stated = [value for key, value in fields if key != "Classifier"]
    stated += [value.rpartition(" :: ")[2] for key, value in fields if value.startswith("License ::")]
    return stated[0] if stated else ""


def first_line(root: Path) -> str:
    """How the text of the licence begins."""
    for path in sorted(root.rglob("LICEN[CS]E*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                return line.strip()[:200]
    return ""


@contextlib.contextmanager
def web(directory: Path) -> Iterator[str]:
    """The files of a directory on HTTP, for servers that fetch."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], work: Path) -> Iterator[Server]:
    with (
        (work.parent / "stderr").open("wb") as stderr,
        subprocess.Popen(
            command,
            env=environment,
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Server(process)
        finally:
            os.killpg(process.pid, 9)


def record(entry: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Install, start and question one server; raises Refused, OSError or CalledProcessError."""
    name, package = entry["server"], entry["package"]
    place = scratch / "installed" / name
    commands = install(package, entry.get("with", []), place)
    run = scratch / "run" / name
    shutil.rmtree(run, ignore_errors=True)
    work, home = run / "workspace", run / "home"
    work.mkdir(parents=True)
    home.mkdir()
    for path, text in entry.get("files", {}).items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, encoding="utf-8")
    environment = {
        "HOME": str(home),
        "USER": "user",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PATH": f"{commands}:/usr/local/bin:/usr/bin:/bin",
    }
    for command in entry.get("before", []):
        subprocess.run(command, cwd=work, env=environment, check=True, timeout=60, capture_output=True)
    with web(work) as address:
        filled = json.loads(
            json.dumps([entry["command"], entry.get("env", {}), entry["asks"]])
            .replace("{work}", str(work))
            .replace("{web}", address)
        )
        command, extra, asks = filled
        with running([str(commands / command[0]), *command[1:]], environment | extra, work) as server:
            found = converse(server, asks)
    neutral = {
        str(work): "/workspace",
        str(home): "/home/user",
        str(place): "/opt/server",
        address: "http://127.0.0.1:8080",
        address.removeprefix("http://"): "127.0.0.1:8080",
    }
    head = {"server": name, "package": package, "licence": licence(package, place)}
    conversation = head | neutralised(found, neutral)
    size = len(json.dumps(conversation))
    if size > MOST_BYTES:
        raise Refused(f"{size} bytes are too many")
    return conversation


def neutralised(found: dict[str, Any], neutral: dict[str, str]) -> dict[str, Any]:
    """The conversation without what only this machine would say; raises Refused if more of that is left."""
    text = json.dumps(found, ensure_ascii=False)
    for ours, theirs in neutral.items():
        text = text.replace(ours, theirs)
    told = [value for name, value in os.environ.items() if name != "HOME"]
    told += [f"{Path.home()}/", f"/{getpass.getuser()}/", socket.gethostname()]
    for value in told:
        # What is shorter, or a plain word, says nothing about a machine.
        if len(value) > 4 and not value.isalpha() and value in text and value not in COMMON_PLACES:
            at = text.index(value)
            raise Refused(f"it tells of this machine: {text[max(0, at - 80) : at + 120]!r}")
    changed: dict[str, Any] = json.loads(text)
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    kept: dict[str, dict[str, Any]] = {}
    entries = json.loads(PLAN.read_text(encoding="utf-8"))
    if options.only and options.output.exists():
        with lzma.open(options.output, "rt", encoding="utf-8") as lines:
            kept = {conversation["server"]: conversation for conversation in map(json.loads, lines)}
    failures = 0
    for entry in entries:
        if options.only and entry["server"] not in options.only:
            continue
        print(entry["server"], entry["package"])
        try:
            kept[entry["server"]] = record(entry, options.scratch.resolve())
        except (Refused, OSError, subprocess.SubprocessError) as error:
            print(f"    NOT RECORDED: {error}")
            kept.pop(entry["server"], None)
            failures += 1
    order = [entry["server"] for entry in entries]
    lines = [json.dumps(kept[name], ensure_ascii=False) + "\n" for name in order if name in kept]
    with lzma.open(
        options.output, "wt", encoding="utf-8", newline="\n", preset=9 | lzma.PRESET_EXTREME
    ) as out:
        out.writelines(lines)
    print(f"{len(lines)} conversations, {options.output.stat().st_size} bytes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
