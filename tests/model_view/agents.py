"""Real agents, each run once against a gateway and a scripted model."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.parts import Parts
from tests.model_view.model import ModelView, ScriptedModel, Step, serving

CLIENTS = Path(__file__).parent / "clients"
PROMPT = "go"
# A conversation takes 2 to 7 s; a loaded machine may take many times that.
AGENT_SECONDS = 150.0
TAIL_CHARACTERS = 3000
# Nothing listens there, so an agent that calls its maker fails at once; gateway and model speak plain HTTP.
NOWHERE = "http://127.0.0.1:9"


class AgentFailed(AssertionError):
    """The agent did not end in time, or ended before the script did."""


@dataclass(frozen=True, slots=True)
class Place:
    """What one run has to itself: a home, the directory that it works in, and where model and gateway are."""

    parts: Parts
    home: Path
    work: Path
    model_url: str
    # An entry as in `mcpServers`: {"url": ...} or {"command": ..., "args": [...]}.
    gateway: Mapping[str, Any]
    # The name that elicitation is answered with, where the agent has a setting for it.
    answer: str | None
    turns: int

    def write(self, path: str, content: str) -> Path:
        """Write a file below the home."""
        written = self.home / path
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(content, encoding="utf-8")
        return written


Command = tuple[list[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: how it is started, and what is known of the way it shows results."""

    name: str
    command: Callable[[Place], Command]
    # What it puts before the names of tools.
    prefix: str
    # What it shows of a result that has both: "text" or "structure".
    shows: str
    # What the server hears when it asks and the test has told the agent an answer, and when it has not.
    elicited: tuple[str, str]
    # What the model reads of a JSON-RPC error instead of its message, if the agent hides it.
    hides_errors_behind: str = ""
    # Arguments of its own that it offers with every tool, and sends to the server where the model gives them.
    adds: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def converse(
    agent: Agent,
    steps: Sequence[Step],
    gateway: Mapping[str, Any],
    *,
    parts: Parts,
    directory: Path,
    work: Path,
    answer: str | None = None,
) -> ModelView:
    """Let the agent talk to a model that makes these calls, and return what the model saw."""
    home = directory / agent.name
    home.mkdir(parents=True)
    model = ScriptedModel(steps, agent.adds)
    with serving(model):
        place = Place(parts, home, work, model.url, gateway, answer, len(steps) + 2)
        command, environment = agent.command(place)
        output = run_bounded(command, _environment(home) | environment, work)
    if not model.complete:
        raise AgentFailed(f"{agent.name} left the script: {model.progress()}\n{output}")
    return model.view()


def _environment(home: Path) -> dict[str, str]:
    """Return an environment without any key, proxy or setting of this machine."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    quiet = {
        "HTTPS_PROXY": NOWHERE,
        "https_proxy": NOWHERE,
        "NO_PROXY": "127.0.0.1",
        "TERM": "xterm-256color",
    }
    return kept | quiet | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}


def run_bounded(
    command: Sequence[str], environment: Mapping[str, str], work: Path, seconds: float = AGENT_SECONDS
) -> str:
    """Run to the end and return the end of what was printed; raises AgentFailed after too long."""
    with subprocess.Popen(
        command,
        env=environment,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A group of its own, so that what it started ends with it.
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            output, _ = process.communicate()
            raise AgentFailed(f"no end within {seconds:g} s\n{_tail(output)}") from None
        finally:
            _kill_group(process.pid)
    return f"exit code {process.returncode}\n{_tail(output)}"


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _tail(output: bytes) -> str:
    return output.decode(errors="replace")[-TAIL_CHARACTERS:]


# How each of them is pointed at the gateway and the model.


def _claude_code(place: Place) -> Command:
    servers = {"headgate": {"type": "http" if "url" in place.gateway else "stdio", **place.gateway}}
    config = place.write("mcp.json", json.dumps({"mcpServers": servers}))
    command = [str(place.parts.model_client_bin("claude")), "-p", PROMPT, "--output-format", "json"]
    command += ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", "mcp__headgate"]
    if place.answer is not None:
        command += ["--settings", str(place.write("settings.json", json.dumps(_answering_hook(place))))]
    environment = {
        "ANTHROPIC_BASE_URL": place.model_url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Otherwise tools may be left to a search of its own, and the first turn does not wait for servers.
        "ENABLE_TOOL_SEARCH": "false",
        "MCP_CONNECTION_NONBLOCKING": "false",
    }
    return command, environment


def _answering_hook(place: Place) -> dict[str, Any]:
    """Return settings with a hook that fills in the form, as a user can have one."""
    said = {"hookEventName": "Elicitation", "action": "accept", "content": {"name": place.answer}}
    said_at = place.write("answer.json", json.dumps({"hookSpecificOutput": said}))
    return {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": f"cat '{said_at}'"}]}]}}


def _codex(place: Place) -> Command:
    # JSON strings and arrays of strings are TOML too.
    server = "\n".join(f"{name} = {json.dumps(value)}" for name, value in place.gateway.items())
    config = f"""
model = "gpt-5"
model_provider = "scripted"
approval_policy = "never"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
enable_request_compression = false

[model_providers.scripted]
name = "scripted"
base_url = {json.dumps(place.model_url + "/v1")}
wire_api = "responses"
env_key = "SCRIPTED_KEY"

# Without `required` the first turn may come before the tools.
[mcp_servers.headgate]
required = true
startup_timeout_sec = {AGENT_SECONDS}
{server}
"""
    place.write(".codex/config.toml", config)
    command = [str(place.parts.node), str(place.parts.model_client_bin("codex")), "exec", PROMPT]
    command += ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return command, {"SCRIPTED_KEY": "scripted", "CODEX_HOME": str(place.home / ".codex")}


def _gemini_cli(place: Place) -> Command:
    server = {**place.gateway, "trust": True} | ({"type": "http"} if "url" in place.gateway else {})
    settings = {
        "mcpServers": {"headgate": server},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    place.write(".gemini/settings.json", json.dumps(settings))
    place.write(".gemini/trustedFolders.json", json.dumps({str(place.work): "TRUST_FOLDER"}))
    command = [str(place.parts.node), str(place.parts.model_client_bin("gemini"))]
    command += ["-m", "gemini-2.5-flash", "-p", PROMPT]
    environment = {"GOOGLE_GEMINI_BASE_URL": place.model_url, "GEMINI_API_KEY": "scripted"}
    # It starts itself a second time to raise the limit of its memory, unless a variable forbids it.
    return command, environment | {"GEMINI_CLI_NO_RELAUNCH": "true"}


def _library(script: str, **options: Any) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        plan = {"model": place.model_url, "server": dict(place.gateway), "prompt": PROMPT}
        plan |= {"answer": place.answer, "turns": place.turns, "seconds": AGENT_SECONDS} | options
        python = str(place.parts.model_client_python)
        return [python, "-W", "ignore", str(CLIENTS / script), json.dumps(plan)], {}

    return command


CANNOT_BE_ASKED = "the client does not support elicitation"

CLAUDE_CODE = Agent("claude-code", _claude_code, "mcp__headgate__", "structure", ("{answer}", "cancel"))
CODEX = Agent("codex", _codex, "mcp__headgate.", "structure", ("decline", "decline"))
GEMINI_CLI = Agent(
    "gemini-cli",
    _gemini_cli,
    "mcp_headgate_",
    "text",
    (CANNOT_BE_ASKED, CANNOT_BE_ASKED),
    adds={"wait_for_previous": True},
)
PYDANTIC_AI = Agent(
    "pydantic-ai", _library("pydantic_agent.py"), "", "structure", ("{answer}", CANNOT_BE_ASKED)
)
OPENAI_AGENTS = Agent(
    "openai-agents",
    _library("openai_agent.py", structured=False),
    "",
    "text",
    (CANNOT_BE_ASKED, CANNOT_BE_ASKED),
    hides_errors_behind="An error occurred while running the tool. Please try again.",
)
OPENAI_AGENTS_STRUCTURED = Agent(
    "openai-agents-structured",
    _library("openai_agent.py", structured=True),
    "",
    "structure",
    OPENAI_AGENTS.elicited,
    hides_errors_behind=OPENAI_AGENTS.hides_errors_behind,
)
AGENTS = (CLAUDE_CODE, CODEX, GEMINI_CLI, PYDANTIC_AI, OPENAI_AGENTS)
