"""A server on the official SDK that answers in every form that an agent can show to its model."""

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from testkit.sdk_servers.client_requests import Context, Interview, Unanswered, form
from testkit.sdk_servers.large_results import PEOPLE_SCHEMA, log, people, told
from testkit.sdk_servers.transports import serve_stdio

CLOSED_SCHEMA = PEOPLE_SCHEMA | {"additionalProperties": False}
OPEN_SCHEMA = {name: part for name, part in PEOPLE_SCHEMA.items() if name != "additionalProperties"}
OUTPUT_SCHEMAS: dict[str, dict[str, Any]] = {"people_open": OPEN_SCHEMA, "people_closed": CLOSED_SCHEMA}
LARGE = 500
LOCKED = "Order 7 is locked by accounting"
CLOSED = "The ledger is closed until Monday"
AS_TEXT = "read as text"
AS_STRUCTURE = "read as structure"
LEDGER_CLOSED_CODE = -32050
DESCRIPTIONS = {
    "greet": "Greet a person by name.",
    "both": "Say one thing as text and another as structure.",
    "people_open": "List all people; the schema of the result admits further members.",
    "people_closed": "List all people; the schema of the result admits no further member.",
    "people_loose": "List all people as structure without a schema.",
    "log": "Show the log of today.",
    "cancel_order": "Cancel an order.",
    "book": "Book an amount in the ledger.",
    "invite": "Invite a person, whose name it asks for.",
    "count_the_people_who_have_bought_something_since_the_beginning_of_last_year": "Count buyers.",
}


class Shop(Server[Any]):
    """Answers at length, in short, with an error, or with a question."""

    def __init__(self) -> None:
        super().__init__("shop", version="1", on_list_tools=self._list_tools, on_call_tool=self._call_tool)

    async def _list_tools(self, _: Context, __: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"name": {"type": "string", "description": "A name."}}}
        tools = [
            types.Tool(
                name=name,
                description=description,
                input_schema=schema,
                output_schema=OUTPUT_SCHEMAS.get(name),
            )
            for name, description in DESCRIPTIONS.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name == "invite":
            return await self._invite(Interview(context, params))
        return self._answer(params.name, params.arguments or {})

    def _answer(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        match name:
            case "both":
                return types.CallToolResult(
                    content=told(AS_TEXT).content, structured_content={"said": AS_STRUCTURE}
                )
            case "people_open" | "people_closed" | "people_loose":
                found = people(LARGE)
                return types.CallToolResult(content=told(json.dumps(found)).content, structured_content=found)
            case "log":
                return told(log(LARGE))
            case "cancel_order":
                return told(LOCKED).model_copy(update={"is_error": True})
            case "book":
                raise MCPError(LEDGER_CLOSED_CODE, CLOSED)
            case _:
                others = ", ".join(sorted(arguments.keys() - {"name"}))
                return told(f"Good morning, {arguments.get('name', 'stranger')}! Not understood: {others}.")

    async def _invite(self, interview: Interview) -> types.CallToolResult | types.InputRequiredResult:
        """Ask for the name; a refusal becomes the result, as the SDK does for tools that are functions."""
        try:
            answers = await interview.ask({"who": form("Who is invited?")})
        except Unanswered as unanswered:
            return unanswered.result
        except MCPError as error:
            return told(f"Nobody was invited: {error}").model_copy(update={"is_error": True})
        return told(f"Invited: {answers['who']}.")


def main() -> None:
    asyncio.run(serve_stdio(Shop(), sys.argv[1]))
