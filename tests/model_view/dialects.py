"""The three model APIs that agents speak: what a request shows the model, and how a turn is answered."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Body = dict[str, Any]
USAGE_TOKENS = 10


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool as the request offers it to the model; Codex groups tools in namespaces."""

    name: str
    description: str
    schema: Body
    namespace: str = ""

    @property
    def full_name(self) -> str:
        """Return the name with its namespace."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call that the scripted model makes."""

    id: str
    tool: OfferedTool
    arguments: Body


class Dialect(Protocol):
    """One model API."""

    def tools(self, body: Body) -> list[OfferedTool]:
        """Return the tools that the request offers to the model."""

    def results(self, body: Body) -> dict[str, str]:
        """Return the text that the model reads of each tool result, by the id of the call."""

    def answer(self, turn: ToolUse | str, *, stream: bool) -> tuple[str, bytes]:
        """Return media type and body of a turn: a tool call, or a text that ends the conversation."""

    def streams(self, path: str, body: Body) -> bool:
        """Say whether the client wants the turn as a stream of events."""


class AnthropicMessages:
    """POST /v1/messages."""

    def tools(self, body: Body) -> list[OfferedTool]:
        return [
            OfferedTool(tool["name"], tool.get("description", ""), tool["input_schema"])
            for tool in body.get("tools", [])
            if "input_schema" in tool
        ]

    def results(self, body: Body) -> dict[str, str]:
        blocks = [block for message in body["messages"] for block in _blocks(message["content"])]
        return {
            block["tool_use_id"]: _text(block.get("content", ""))
            for block in blocks
            if block["type"] == "tool_result"
        }

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def answer(self, turn: ToolUse | str, *, stream: bool) -> tuple[str, bytes]:
        block, reason = self._block(turn)
        usage = {"input_tokens": USAGE_TOKENS, "output_tokens": USAGE_TOKENS}
        message: Body = {"id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted"}
        message |= {"content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}
        if not stream:
            return _json(message)
        return _events((event["type"], event) for event in self._events(message, block, reason, turn))

    def _block(self, turn: ToolUse | str) -> tuple[Body, str]:
        if isinstance(turn, str):
            return {"type": "text", "text": turn}, "end_turn"
        name = turn.tool.full_name
        return {"type": "tool_use", "id": turn.id, "name": name, "input": turn.arguments}, "tool_use"

    def _events(self, message: Body, block: Body, reason: str, turn: ToolUse | str) -> Iterator[Body]:
        yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
        if isinstance(turn, str):
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": turn}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        yield {"type": "content_block_start", "index": 0, "content_block": empty}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        ending = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": USAGE_TOKENS}}
        yield {"type": "message_stop"}


class OpenAIResponses:
    """POST /v1/responses."""

    def tools(self, body: Body) -> list[OfferedTool]:
        return list(self._tools(body.get("tools", []), ""))

    def _tools(self, tools: Sequence[Body], namespace: str) -> Iterator[OfferedTool]:
        for tool in tools:
            if tool["type"] == "namespace":
                yield from self._tools(tool["tools"], tool["name"])
            elif tool["type"] == "function":
                schema = tool.get("parameters") or {}
                yield OfferedTool(tool["name"], tool.get("description") or "", schema, namespace)

    def results(self, body: Body) -> dict[str, str]:
        items = body["input"] if isinstance(body["input"], list) else []
        return {
            item["call_id"]: _text(item["output"])
            for item in items
            if item.get("type") == "function_call_output"
        }

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def answer(self, turn: ToolUse | str, *, stream: bool) -> tuple[str, bytes]:
        item = self._item(turn)
        response = {"id": "resp_scripted", "object": "response", "created_at": 0, "model": "scripted"}
        response |= {"status": "completed", "output": [item], "parallel_tool_calls": False}
        response |= {"tool_choice": "auto", "tools": [], "usage": self._usage()}
        if not stream:
            return _json(response)
        events: list[Body] = [
            {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return _events(
            (event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)
        )

    def _usage(self) -> Body:
        usage: Body = {"input_tokens": USAGE_TOKENS, "output_tokens": USAGE_TOKENS}
        details = {"input_tokens_details": {"cached_tokens": 0}}
        return (
            usage
            | details
            | {
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2 * USAGE_TOKENS,
            }
        )

    def _item(self, turn: ToolUse | str) -> Body:
        if isinstance(turn, str):
            content = [{"type": "output_text", "text": turn, "annotations": []}]
            item = {"type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed"}
            return item | {"content": content}
        item = {"type": "function_call", "id": f"fc_{turn.id}", "call_id": turn.id, "status": "completed"}
        item |= {"name": turn.tool.name, "arguments": json.dumps(turn.arguments)}
        return item | ({"namespace": turn.tool.namespace} if turn.tool.namespace else {})


class GeminiGenerateContent:
    """POST /v1beta/models/MODEL:generateContent and :streamGenerateContent."""

    def tools(self, body: Body) -> list[OfferedTool]:
        declared = (tool.get("functionDeclarations", []) for tool in body.get("tools", []))
        return [
            OfferedTool(
                tool["name"],
                tool.get("description", ""),
                tool.get("parametersJsonSchema") or tool.get("parameters") or {},
            )
            for tools in declared
            for tool in tools
        ]

    def results(self, body: Body) -> dict[str, str]:
        parts = [part for content in body["contents"] for part in content.get("parts", [])]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        return {response["id"]: self._read(response["response"]) for response in responses}

    def _read(self, response: Body) -> str:
        if set(response) == {"output"} and isinstance(response["output"], str):
            return str(response["output"])
        return json.dumps(response, ensure_ascii=False)

    def streams(self, path: str, body: Body) -> bool:
        return ":streamGenerateContent" in path

    def answer(self, turn: ToolUse | str, *, stream: bool) -> tuple[str, bytes]:
        if isinstance(turn, str):
            part: Body = {"text": turn}
        else:
            call = {"id": turn.id, "name": turn.tool.full_name, "args": turn.arguments}
            part = {"functionCall": call}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": USAGE_TOKENS, "candidatesTokenCount": USAGE_TOKENS}
        usage |= {"totalTokenCount": 2 * USAGE_TOKENS}
        chunk = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
        return _events([("", chunk)]) if stream else _json(chunk)


def dialect_of(path: str) -> Dialect | None:
    """Return the API that a path belongs to, or None for a path that asks no model."""
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return AnthropicMessages()
    if path.endswith("/responses"):
        return OpenAIResponses()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GeminiGenerateContent()
    return None


def _blocks(content: str | list[Body]) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: str | list[Body]) -> str:
    """Join the texts of a result; a part that is no text is shown by its type."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", f"<{part['type']}>") for part in content)


def _json(value: Body) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def _events(events: Iterable[tuple[str, Body]]) -> tuple[str, bytes]:
    lines = (
        f"event: {name}\ndata: {json.dumps(event)}\n\n" if name else f"data: {json.dumps(event)}\n\n"
        for name, event in events
    )
    return "text/event-stream", "".join(lines).encode()
