"""What the whole server has: prompts, resources and templates, listed page by page, and how they are read."""

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from testkit.sdk_servers.client_requests import Interview, form

PAGE = 2
NAMES = ("Ada", "Alan", "Grace")
_T = TypeVar("_T")


class Contents:
    """The offers of one server; its label is in everything that it says."""

    def __init__(self, label: str, *, paged: bool = False, endless: str = "") -> None:
        self.label = label
        self._paged = paged
        # The kind whose listing never ends.
        self._endless = endless
        self.grown: dict[str, list[str]] = {"tools": [], "prompts": [], "resources": []}

    def page(self, kind: str, items: Sequence[_T], params: Any) -> tuple[list[_T], str | None]:
        """The page that was asked for, and the cursor of the next one."""
        if kind == self._endless:
            return list(items[:1]), "round and round"
        if not self._paged:
            return list(items), None
        start = int(params.cursor) if params is not None and params.cursor else 0
        following = start + PAGE
        return list(items[start:following]), str(following) if following < len(items) else None

    def prompts(self) -> list[types.Prompt]:
        who = types.PromptArgument(name="who", description="Whom to greet", required=True)
        fixed = [types.Prompt(name="greet", arguments=[who]), types.Prompt(name="ask-first")]
        more = [types.Prompt(name=f"plain-{number}") for number in range(3)]
        return [*fixed, *more, *(types.Prompt(name=name) for name in self.grown["prompts"])]

    async def prompt(
        self, interview: Interview, name: str, arguments: dict[str, str]
    ) -> types.GetPromptResult:
        if name == "ask-first":
            answers = await interview.ask({"who": form("Who reads the prompt?")})
            return said_prompt(f"{self.label} greets {answers['who']}")
        if name not in {prompt.name for prompt in self.prompts()}:
            raise MCPError(types.INVALID_PARAMS, f"no prompt is called {name}")
        return said_prompt(f"{self.label} greets {arguments.get('who', name)}")

    def resources(self) -> list[types.Resource]:
        own = f"{self.label}://"
        fixed = ["shared://note", f"{own}bytes", f"{own}question", f"{own}one", f"{own}two"]
        return [
            types.Resource(uri=uri, name=uri, mime_type="text/plain")
            for uri in (*fixed, *self.grown["resources"])
        ]

    def templates(self) -> list[types.ResourceTemplate]:
        uris = ["{kind}/{number}", "room/{name}", "year/{year}"]
        return [types.ResourceTemplate(uri_template=f"{self.label}://{uri}", name=uri) for uri in uris]

    async def read(self, interview: Interview, uri: str) -> types.ReadResourceResult:
        if uri == f"{self.label}://bytes":
            blob = base64.b64encode(b"\x00\xff" + self.label.encode()).decode()
            contents: Any = types.BlobResourceContents(uri=uri, blob=blob)
        elif uri == f"{self.label}://question":
            answers = await interview.ask({"who": form("Who reads the resource?")})
            contents = types.TextResourceContents(uri=uri, text=f"for {answers['who']}")
        elif uri.endswith("missing"):
            raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
        else:
            contents = types.TextResourceContents(uri=uri, text=f"{self.label} has {uri}")
        return types.ReadResourceResult(contents=[contents])

    def complete(self, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Names that begin so, with what they are for."""
        ref = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        found = [f"{name} {ref}" for name in NAMES if name.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=found))


def said_prompt(words: str) -> types.GetPromptResult:
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=words))
    return types.GetPromptResult(messages=[message])
