"""Definitions as servers send them, and what is read of their small forms."""

import json
from typing import Any


def a_tool(
    description: str = "", properties: dict[str, Any] | None = None, *required: str, **more: Any
) -> bytes:
    """A definition; members of the schema other than those of most tools come in `schema`."""
    schema: dict[str, Any] = {"type": "object", "properties": properties or {}, "required": list(required)}
    schema |= more.pop("schema", {})
    whole = {"name": "files_read", "description": description, "inputSchema": schema, **more}
    return json.dumps(whole, ensure_ascii=False).encode()


def described(form: bytes) -> str:
    """What the form says about the tool."""
    return str(json.loads(form).get("description", ""))


def arguments(form: bytes) -> Any:
    """What the form says about its arguments."""
    return json.loads(form)["inputSchema"].get("properties", {})


LONG = {
    "type": "string",
    "description": "Says at some length what nobody needs in order to call the tool at all",
}
