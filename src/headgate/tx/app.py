"""Declares the tools of a server as functions of a program, each with its delivery options."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from types import TracebackType
from typing import Any, Final, ParamSpec, Self

from headgate.tx.config import RetryPolicy, TxConfig, check_arguments, check_policy, check_timeout
from headgate.tx.errors import TxError
from headgate.tx.session import TxSession
from headgate.tx.tool_call import TxResult

P = ParamSpec("P")
KeyGenerator = Callable[[Mapping[str, Any]], str]

_MOST_TOOLS: Final = 1000


@dataclass(frozen=True, slots=True)
class _DeclaredTool:
    retry_policy: RetryPolicy | None
    key_of: KeyGenerator | None
    timeout_ms: float | None


class TxApp:
    """The tools that a program uses; enter it before the first call. It opens the session if need be."""

    def __init__(self, session: Any, config: TxConfig | None = None) -> None:
        self._tx = session if isinstance(session, TxSession) else TxSession(session, config)
        self._tools: dict[str, _DeclaredTool] = {}
        self._stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if not self._tx.is_open:
                await stack.enter_async_context(self._tx)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, error, traceback) if stack is not None else None

    @property
    def tools(self) -> tuple[str, ...]:
        """The names that were declared."""
        return tuple(self._tools)

    def tool(
        self,
        *,
        name: str | None = None,
        retry_policy: RetryPolicy | None = None,
        idempotency_key_generator: KeyGenerator | None = None,
        timeout_ms: float | None = None,
    ) -> Callable[[Callable[P, Awaitable[Any]]], Callable[P, Coroutine[Any, Any, TxResult]]]:
        """Turn an async function into a call of the server's tool of that name.

        Its parameters are the arguments of the tool; its body never runs. The generator makes the idempotency
        key of the arguments. Raises TxError for a duplicate name and beyond 1000 tools.
        """
        declared = _DeclaredTool(
            None if retry_policy is None else check_policy(retry_policy),
            idempotency_key_generator,
            None if timeout_ms is None else check_timeout(timeout_ms),
        )

        def declare(function: Callable[P, Awaitable[Any]]) -> Callable[P, Coroutine[Any, Any, TxResult]]:
            called = name or function.__name__
            signature = inspect.signature(function)
            kinds = {parameter.kind for parameter in signature.parameters.values()}
            if not inspect.iscoroutinefunction(function) or inspect.Parameter.VAR_POSITIONAL in kinds:
                raise TypeError("a tool is an async function whose parameters have names")
            if called in self._tools:
                raise TxError(
                    f"a tool {called!r} is declared already; give this one another name", "INVALID_PARAMS"
                )
            if len(self._tools) >= _MOST_TOOLS:
                raise TxError(f"at most {_MOST_TOOLS} tools can be declared", "RESOURCE_EXHAUSTED")
            self._tools[called] = declared

            @wraps(function)
            async def call(*given: P.args, **named: P.kwargs) -> TxResult:
                return await self.call_tool(called, _arguments(signature, given, named))

            return call

        return declare

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> TxResult:
        """Call a declared tool; raises TxError for any other, and before the app is entered."""
        declared = self._tools.get(name)
        if declared is None:
            near = get_close_matches(name, self._tools, n=3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "declare it with @app.tool()"
            raise TxError(f"no tool {name!r} is declared; {hint}", "TOOL_NOT_FOUND")
        if self._stack is None:
            raise TxError(f"{name!r} was called before `async with app`", "SERVICE_UNAVAILABLE")
        check_arguments(arguments)
        return await self._tx.call_tool(
            name,
            arguments,
            idempotency_key=declared.key_of(arguments or {}) if declared.key_of is not None else None,
            timeout_ms=declared.timeout_ms,
            retry_policy=declared.retry_policy,
        )


def _arguments(signature: inspect.Signature, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; defaults are left to the server."""
    arguments: dict[str, Any] = {}
    for name, value in signature.bind(*given, **named).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        else:
            arguments[name] = value
    return arguments
