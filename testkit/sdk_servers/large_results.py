"""A server on the official SDK whose tools say much, in every way that a result can say it."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server

from testkit.sdk_servers.client_requests import Context, Interview, Unanswered, form
from testkit.sdk_servers.transports import refuse_initialize, serve, server_options

META = {"vendor.example/trace": {"depth": [1, {"two": None}], "text": "ü"}}
PICTURE = base64.b64encode(bytes(range(256)) * 40).decode()
LINK = "bulk://report/2026"
NOTE = "bulk://note"
PEOPLE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "total": {"type": "integer"},
        "users": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "email": {"type": "string"}},
                "required": ["id", "name", "email", "city"],
            },
        },
    },
    "required": ["total", "users"],
}
# An object of it has no place for another member.
CLOSED_SCHEMA: dict[str, Any] = {**PEOPLE_SCHEMA, "additionalProperties": False}


SCHEMAS = {"typed": PEOPLE_SCHEMA, "closed": CLOSED_SCHEMA}


# What the tools say, for comparison.


def people(count: int) -> dict[str, Any]:
    """Users, of whom two in three have their mail with gmail."""
    users = [
        {
            "id": number,
            "name": f"user{number}",
            "email": f"u{number}@{'gmail' if number % 3 else 'corp'}.example",
            "city": ("Rome", "Oslo")[number % 2],
            "password": f"secret{number}",
        }
        for number in range(count)
    ]
    return {"total": count, "users": users}


def log(count: int) -> str:
    """A log in which every fiftieth line is an error."""
    return "\n".join(
        f"2026-11-16T09:{number % 60:02} {'ERROR' if number % 50 == 0 else 'INFO'} request {number} größer"
        for number in range(count)
    )


def pieces(count: int) -> list[str]:
    """Texts, each a JSON object."""
    return [json.dumps({"piece": number, "words": "many words " * 10}) for number in range(count)]


def mixed() -> list[types.ContentBlock]:
    """Two long texts, and everything that is no text between them."""
    note = types.TextResourceContents(uri=NOTE, mime_type="text/plain", text="short note")
    blob = types.BlobResourceContents(uri="bulk://blob", blob=PICTURE)
    return [
        types.TextContent(type="text", text=log(200), _meta={"vendor.example/block": 1}),
        types.ImageContent(type="image", data=PICTURE, mime_type="image/png"),
        types.ResourceLink(type="resource_link", uri=LINK, name="report", description="The whole report"),
        types.EmbeddedResource(type="resource", resource=note),
        types.EmbeddedResource(type="resource", resource=blob),
        types.AudioContent(type="audio", data=PICTURE, mime_type="audio/wav"),
        types.TextContent(type="text", text=json.dumps(people(100))),
    ]


class LargeResults(Server[Any]):
    """Answers at length, and writes down each call."""

    def __init__(self, era: str, journal: Path) -> None:
        super().__init__("bulk", version="1", on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        self._journal = journal
        self._tools: dict[str, Callable[[int], types.CallToolResult]] = {
            "echo": lambda size: told("x" * size),
            "users": lambda size: told(json.dumps(people(size))),
            "log": lambda size: told(log(size)),
            "pieces": lambda size: told(*pieces(size)),
            "mixed": lambda _: types.CallToolResult(content=mixed(), _meta=META),
            "failed": lambda _: types.CallToolResult(content=mixed(), is_error=True, _meta=META),
            "typed": structured,
            "closed": structured,
            "loose": structured,
            "bare": lambda size: structured(size).model_copy(update={"content": []}),
            "summed": lambda size: structured(size).model_copy(
                update={"content": told(f"{size} users").content}
            ),
        }
        refuse_initialize(self, era)

    async def _list_tools(self, _: Context, __: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
        tools = [
            types.Tool(
                name=name,
                description=f"Says much of {name}.",
                input_schema=schema,
                output_schema=SCHEMAS.get(name),
            )
            for name in (*self._tools, "ask")
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        with self._journal.open("a") as journal:
            journal.write(f"{params.name}\n")
        if params.name == "ask":
            return await self._ask(Interview(context, params))
        return self._tools[params.name]((params.arguments or {}).get("size", 500))

    async def _ask(self, interview: Interview) -> types.CallToolResult | types.InputRequiredResult:
        """Ask first, and then answer at length."""
        try:
            answers = await interview.ask({"who": form("Whom is it for?")})
        except Unanswered as unanswered:
            return unanswered.result
        return told(f"{log(500)}\nfor {answers['who']}")


def told(*texts: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text) for text in texts])


def structured(size: int) -> types.CallToolResult:
    said = told(json.dumps(people(size)))
    return said.model_copy(update={"structured_content": people(size)})


def main() -> None:
    options = server_options().parse_args()
    asyncio.run(serve(LargeResults(options.era, options.journal), options))
