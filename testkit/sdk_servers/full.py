"""A server on the official SDK that speaks one era only and has all that the protocol knows."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from testkit.sdk_servers.client_requests import (
    Context,
    Interview,
    Question,
    Unanswered,
    form,
    link,
    roots,
    sample,
)
from testkit.sdk_servers.full_contents import Contents
from testkit.sdk_servers.one_era import LONGEST_WAIT_SECONDS, says
from testkit.sdk_servers.transports import refuse_initialize, serve, server_options

LEVELS: tuple[types.LoggingLevel, ...] = ("debug", "info", "warning", "error")
CHANGES: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}
Work = Callable[[Context, Interview, str], Awaitable[types.CallToolResult]]


class SumParams(types.RequestParams):
    """What `vendor/sum` takes."""

    a: int
    b: int


class NoticeParams(types.NotificationParams):
    """What a notice says."""

    text: str


class Notice(types.Notification[NoticeParams, Literal["notifications/vendor/notice"]]):
    """A notification that no revision of the protocol knows."""

    method: Literal["notifications/vendor/notice"] = "notifications/vendor/notice"
    params: NoticeParams


class FullServer(Server[Any]):
    """Every handler, on one stock and one journal."""

    def __init__(self, era: str, stock: Contents, journal: Path) -> None:
        self.bus = InMemorySubscriptionBus()
        listen = ListenHandler(self.bus)
        super().__init__(
            stock.label,
            version="1",
            instructions=f"Advice of {stock.label}.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_completion=self._complete,
            on_set_logging_level=self._set_level,
            on_subscribe_resource=self._subscribe if era == "legacy" else None,
            on_unsubscribe_resource=self._unsubscribe if era == "legacy" else None,
            on_subscriptions_listen=listen if era == "modern" else None,
        )
        self._era, self._stock, self._journal = era, stock, journal
        self._sessions: list[ServerSession] = []
        self._levels: dict[str, types.LoggingLevel] = {}
        self._subscribers: list[tuple[str, str, ServerSession]] = []
        self._tools: dict[str, Work] = {
            "echo": self._echo,
            "ask": self._ask,
            "ask_link": self._ask_link,
            "ask_model": self._ask_model,
            "ask_roots": self._ask_roots,
            "ask_all": self._ask_all,
            "ask_twice": self._ask_twice,
            "log": self._log,
            "notice": self._notice,
            "grow_tools": self._grow,
            "grow_prompts": self._grow,
            "grow_resources": self._grow,
            "touch": self._touch,
            "steps": self._steps,
        }
        self.add_request_handler("vendor/sum", SumParams, self._sum)
        refuse_initialize(self, era)
        self.middleware.append(self._watch)

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(every)

    async def _watch(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen":
            wanted = (ctx.params or {}).get("notifications", {}).get("resourceSubscriptions", [])
            self._write(f"listen {' '.join(wanted)}".strip())
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized":
            self._sessions.append(ctx.session)
        return result

    def _write(self, line: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(line + "\n")

    # Listings.

    async def _list_tools(self, _: Context, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        names = (*self._tools, *self._stock.grown["tools"])
        tools, cursor = self._stock.page(
            "tools", [types.Tool(name=name, input_schema=schema) for name in names], params
        )
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _list_prompts(self, _: Context, params: Any) -> types.ListPromptsResult:
        prompts, cursor = self._stock.page("prompts", self._stock.prompts(), params)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _list_resources(self, _: Context, params: Any) -> types.ListResourcesResult:
        resources, cursor = self._stock.page("resources", self._stock.resources(), params)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_templates(self, _: Context, params: Any) -> types.ListResourceTemplatesResult:
        templates, cursor = self._stock.page("templates", self._stock.templates(), params)
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    # Requests that may ask.

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        text = (params.arguments or {}).get("text", "")
        if params.name in self._stock.grown["tools"]:
            return says(f"{params.name} is here")
        work, interview = self._tools[params.name], Interview(context, params)
        self._write(f"{'resumed' if interview.begun else 'began'} {params.name} {text}".strip())
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                result = await work(context, interview, text)
        except Unanswered as unanswered:
            return unanswered.result
        except MCPError as error:
            result = says(f"refused with {error.error.code}")
        except asyncio.CancelledError:
            self._write(f"cancelled {params.name} {text}".strip())
            raise
        self._write(f"finished {params.name} {text}".strip())
        return result

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        try:
            return await self._stock.prompt(Interview(context, params), params.name, params.arguments or {})
        except Unanswered as unanswered:
            return unanswered.result

    async def _read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        try:
            return await self._stock.read(Interview(context, params), params.uri)
        except Unanswered as unanswered:
            return unanswered.result

    # Tools.

    async def _echo(self, _: Context, __: Interview, text: str) -> types.CallToolResult:
        return says(text)

    async def _ask(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        return says(f"{text}: {(await interview.ask({'who': form(text)}))['who']}")

    async def _ask_link(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        return says(f"{text}: {(await interview.ask({'opened': link(text)}))['opened']}")

    async def _ask_model(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        return says(f"{text}: {(await interview.ask({'model': sample(text)}))['model']}")

    async def _ask_roots(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        return says(f"{text}: {(await interview.ask({'roots': roots()}))['roots']}")

    async def _ask_all(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        questions: dict[str, Question] = {"who": form(text), "model": sample(text), "roots": roots()}
        answers = await interview.ask(questions)
        return says(f"{text}: {answers['who']}, {answers['model']}, {answers['roots']}")

    async def _ask_twice(self, _: Context, interview: Interview, text: str) -> types.CallToolResult:
        first = await interview.ask({"first": form(f"{text} 1")})
        second = await interview.ask({"second": sample(f"{text} 2")})
        return says(f"{text}: {first['first']}, {second['second']}")

    async def _log(self, context: Context, _: Interview, text: str) -> types.CallToolResult:
        lowest = self._levels.get(session_of(context), "debug")
        for level in LEVELS[LEVELS.index(lowest) :]:
            await context.session.send_log_message(
                level, f"{level} of {text}", related_request_id=context.request_id
            )
        return says(text)

    async def _notice(self, context: Context, _: Interview, text: str) -> types.CallToolResult:
        notice: Any = Notice(params=NoticeParams(text=text))
        await context.session.send_notification(notice, related_request_id=context.request_id)
        return says(text)

    async def _steps(self, context: Context, _: Interview, text: str) -> types.CallToolResult:
        for step in (1, 2, 3):
            await context.session.report_progress(step, 3, f"{text} {step}")
        return says(text)

    # Changes.

    async def _grow(self, context: Context, _: Interview, text: str) -> types.CallToolResult:
        kind = (context.params or {})["name"].removeprefix("grow_")
        self._stock.grown[kind].append(text)
        await self.bus.publish(CHANGES[kind])
        for session in self._sessions:
            match kind:
                case "tools":
                    await session.send_tool_list_changed()
                case "prompts":
                    await session.send_prompt_list_changed()
                case _:
                    await session.send_resource_list_changed()
        return says(f"grew {text}")

    async def _touch(self, _: Context, __: Interview, uri: str) -> types.CallToolResult:
        await self.bus.publish(ResourceUpdated(uri=uri))
        for _session, subscribed, session in self._subscribers:
            if subscribed == uri:
                await session.send_resource_updated(uri)
        return says(f"touched {uri}")

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self._write(f"subscribe {params.uri}")
        self._subscribers.append((session_of(context), params.uri, context.session))
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._write(f"unsubscribe {params.uri}")
        gone = (session_of(context), params.uri)
        self._subscribers = [one for one in self._subscribers if one[:2] != gone]
        return types.EmptyResult()

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._write(f"level {params.level}")
        self._levels[session_of(context)] = params.level
        return types.EmptyResult()

    # The rest.

    async def _complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return self._stock.complete(params)

    async def _sum(self, _: Context, params: SumParams) -> dict[str, Any]:
        return {"sum": params.a + params.b, "server": self._stock.label}


def session_of(context: Context) -> str:
    # On stdio there is one connection, so one name does for it.
    return context.request.headers.get("mcp-session-id", "") if context.request is not None else ""


def main() -> None:
    # Logging, sampling and roots are deprecated, and servers still use them.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    parser = server_options()
    parser.add_argument("--label", required=True)
    parser.add_argument("--paged", action="store_true")
    parser.add_argument("--endless", default="", help="the kind whose listing never ends")
    options = parser.parse_args()
    contents = Contents(options.label, paged=options.paged, endless=options.endless)
    asyncio.run(serve(FullServer(options.era, contents, options.journal), options))
