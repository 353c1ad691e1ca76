"""Record the terminal session that the README shows: real programs, real output, drawn as an animated SVG.

    python scripts/record_demo.py      # writes docs/images/demo.svg

It needs `make parts`: servers of npm and PyPI, and Claude Code, which connects without an account.
"""

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from testkit.gateway_process import GatewayProcess, free_port
from testkit.parts import Parts
from testkit.waiting import wait_until

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "images" / "demo.svg"
CONFIG = ROOT / "examples" / "personal.json"
SERVERS = {"server-filesystem": "mcp-server-filesystem", "server-memory": "mcp-server-memory"}
SECONDS = 60
# In the picture the gateway has its usual port.
PORT = 8000
LINE_HEIGHT = 19
CHARACTER_WIDTH = 8.1
# Between two lines of output, and after a command, as one reads it.
LINE_SECONDS = 0.12
COMMAND_SECONDS = 1.1
STYLE = """
    text { font: 13.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }
    text { fill: #d7dde5; }
    .command { fill: #7ee2b8; font-weight: 600; }
    .line { opacity: 0; animation: show 0.01s linear forwards; }
    @keyframes show { to { opacity: 1; } }
    @media (prefers-reduced-motion: reduce) { .line { animation: none; opacity: 1; } }
"""


def record(home: Path) -> list[tuple[str, str]]:
    """The commands of the session, each with what it printed."""
    port = free_port()
    environment = prepare(home, Parts())
    config = home / "headgate.json"
    config.write_text(CONFIG.read_text())
    serve = [
        str(Path(sys.executable).parent / "headgate"),
        "serve",
        "--config",
        str(config),
        "--transport",
        "http",
    ]
    log = home / "log"
    with (
        log.open("wb") as written,
        subprocess.Popen([*serve, "--port", str(port)], env=environment, cwd=home, stderr=written) as process,
    ):
        gateway = GatewayProcess(process, port, config, home, log)
        try:
            wait_until(gateway.answers, SECONDS, "the gateway answers")
            gateway.wait_until_ready("files", "memory", seconds=SECONDS)
            claude = str(Parts().model_client_bin("claude"))
            url = f"http://127.0.0.1:{port}/mcp"
            added = run([claude, "mcp", "add", "--transport", "http", "headgate", url], environment, home)
            listed = run([claude, "mcp", "list"], environment, home)
        finally:
            gateway.stop()
        printed = re.findall(r"^.*(?:listening|ready).*$", log.read_text(), re.MULTILINE)
    listing = run([serve[0], "listing", "--config", str(config)], environment, home)
    modes = listing[listing.index("Modes") :].partition("\n\n")[0]
    shown = [
        ("headgate serve --config headgate.json --transport http &", "\n".join(printed)),
        (f"claude mcp add --transport http headgate http://127.0.0.1:{PORT}/mcp", added.splitlines()[0]),
        ("claude mcp list", listed.splitlines()[-1]),
        ("headgate listing --config headgate.json", columns(modes)),
    ]
    return [(command, text.replace(str(port), str(PORT))) for command, text in shown]


def prepare(home: Path, parts: Parts) -> dict[str, str]:
    """An environment whose npx and uvx run the installed servers."""
    programs = home / "bin"
    programs.mkdir()
    cases = "\n".join(
        f'*{name}) exec {parts.node} {parts.npm_bin(command)} "$@" ;;' for name, command in SERVERS.items()
    )
    scripts = {
        "npx": f'shift; name="$1"; shift\ncase "$name" in\n{cases}\nesac',
        "uvx": f'name="$1"; shift\nexec {parts.server_python.parent}/"$name" "$@"',
    }
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (home / "Documents").mkdir()
    (home / ".headgate").mkdir()
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(home),
        "TERM": "dumb",
        "HEADGATE_LOG_FORMAT": "pretty",
        "COLUMNS": "100",
    }


def run(command: list[str], environment: dict[str, str], directory: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=directory, check=True, capture_output=True, text=True, timeout=SECONDS
    )
    return done.stdout.strip()


def columns(table: str) -> str:
    """The first three columns of the table of modes, without the mode that chooses among them."""
    lines = [re.split(r"\s{2,}", line.strip())[:3] for line in table.splitlines()[1:-1]]
    return "\n".join([*(f"  {mode:<14}{tokens:>8}{share:>12}" for mode, tokens, share in lines), "  …"])


def draw(session: list[tuple[str, str]]) -> str:
    """The session as an SVG in which one line appears after the other."""
    rows: list[str] = []
    seconds, y = 0.4, 52
    widest = 0
    for command, text in session:
        seconds += COMMAND_SECONDS
        for line, kind in [(f"$ {command}", " command"), *((line, "") for line in text.splitlines())]:
            shown = f'class="line{kind}" style="animation-delay:{seconds:.2f}s" xml:space="preserve"'
            rows.append(f'  <text {shown} x="20" y="{y}">{escape(line)}</text>')
            widest = max(widest, len(line))
            seconds += LINE_SECONDS
            y += LINE_HEIGHT
        y += LINE_HEIGHT // 2
    width = round(widest * CHARACTER_WIDTH) + 40
    dots = "".join(
        f'<circle cx="{20 + 18 * n}" cy="20" r="5.5" fill="{c}"/>'
        for n, c in enumerate(("#e0645c", "#e0b04c", "#63b35c"))
    )
    label = (
        "Terminal: the gateway starts, Claude Code connects, headgate listing prints the tokens of each mode"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
        f'role="img" aria-label="{label}">\n  <style>{STYLE}  </style>\n'
        f'  <rect width="100%" height="100%" rx="9" fill="#1b2330"/>\n  {dots}\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        session = record(Path(home))
    TARGET.write_text(draw(session))
    print("\n".join(f"$ {command}\n{text}" for command, text in session))


if __name__ == "__main__":
    main()
