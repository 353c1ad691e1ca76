"""How a tool, a prompt or a resource asks its client, in the way of the era that the request speaks."""

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Question = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
Reply = types.ElicitResult | types.CreateMessageResult | types.ListRootsResult

REPLIES: dict[str, type[Reply]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


class Unanswered(Exception):
    """The client must come back with answers: how a request of the modern era asks."""

    def __init__(self, questions: Mapping[str, Question], told: dict[str, Any]) -> None:
        super().__init__("input is required")
        self.result = types.InputRequiredResult(
            input_requests=dict(questions), request_state=json.dumps(told, sort_keys=True)
        )


class Interview:
    """One request, and what its client has said so far."""

    def __init__(self, context: Context, params: types.InputResponseRequestParams) -> None:
        self._context = context
        self._stateless = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        # Every round of the modern era starts over; the answers of earlier rounds come back in the state.
        self._told: dict[str, Any] = json.loads(params.request_state) if params.request_state else {}
        for key, reply in (params.input_responses or {}).items():
            self._told[key] = reply.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def begun(self) -> bool:
        """Whether an earlier round has asked."""
        return bool(self._told)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, str]:
        """What the client says to each question, in one word or two; raises Unanswered or MCPError."""
        if not self._stateless:
            return {
                key: summary(await ask_client(self._context, question)) for key, question in questions.items()
            }
        missing = {key: question for key, question in questions.items() if key not in self._told}
        if missing:
            raise Unanswered(missing, self._told | {"rounds": self._told.get("rounds", 0) + 1})
        return {
            key: summary(REPLIES[question.method].model_validate(self._told[key], by_name=False))
            for key, question in questions.items()
        }


async def ask_client(context: Context, question: Question) -> Reply:
    """Ask a client of the handshake era, on the stream of the request. Raises MCPError."""
    related = ServerMessageMetadata(related_request_id=context.request_id)
    return await context.session.send_request(question, REPLIES[question.method], metadata=related)


def summary(reply: Reply) -> str:
    if isinstance(reply, types.ListRootsResult):
        return " ".join(str(root.name) for root in reply.roots)
    if isinstance(reply, types.CreateMessageResult):
        return reply.content.text if isinstance(reply.content, types.TextContent) else reply.content.type
    return str(reply.content["name"]) if reply.content else reply.action


def form(text: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=text, requested_schema=schema))


def link(text: str) -> types.ElicitRequest:
    params = types.ElicitRequestURLParams(
        message=text, url="https://example.org/sign-in", elicitation_id=text
    )
    return types.ElicitRequest(params=params)


def sample(text: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    """A question to the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    return types.CreateMessageRequest(params=params)


def roots() -> types.ListRootsRequest:
    return types.ListRootsRequest()
