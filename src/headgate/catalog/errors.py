"""Errors for names that the catalog does not have."""

from headgate.domain.errors import MAX_CAUSE, HeadgateError, quoted


class ServerNotFound(HeadgateError):
    """No server has this name; the nearest names are given."""

    code = "SERVER_NOT_FOUND"

    def __init__(self, name: str, nearest: list[str], *, finder: str = "tools/list shows all") -> None:
        super().__init__(
            f"Unknown server: {name[:200]!r}", hint=f"{_similar_names('server', nearest)}; {finder}"
        )


class ServerNotRunning(HeadgateError):
    """The configured server is disabled, or its entry is invalid."""

    code = "SERVER_NOT_FOUND"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"Server {name[:200]!r} does not run: {quoted(reason, MAX_CAUSE)}",
            hint="correct its entry in the configuration; the other servers work",
        )


class ToolNotFound(HeadgateError):
    """No tool has this name for this caller; the nearest names are given."""

    code = "TOOL_NOT_FOUND"

    def __init__(self, name: str, nearest: list[str], *, finder: str = "tools/list shows all") -> None:
        self.name = name
        self.nearest = nearest
        super().__init__(f"Unknown tool: {name[:200]!r}", hint=f"{_similar_names('tool', nearest)}; {finder}")


class SchemaNotFound(HeadgateError):
    """No tool has this name for this caller, so there is no schema to expand; the nearest names are given."""

    code = "TOOL_NOT_FOUND"

    def __init__(self, name: str, nearest: list[str]) -> None:
        given = name[:200]
        # With escapes for control characters of terminals.
        message = f"Schema not found for tool: {given if given.isprintable() else ascii(given)[1:-1]}"
        if nearest:
            message += f"; nearest: {', '.join(nearest)}"
        super().__init__(message, hint="give the name of a tool as it is listed or found")


class InvalidExpansionRequest(HeadgateError):
    """Invalid arguments of expandSchema; the message is the whole text that a model reads."""

    code = "INVALID_PARAMS"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint='call it with {"toolName": "a tool"}, or with a path as well')


class PromptNotFound(HeadgateError):
    """No prompt has this name for this caller; the nearest names are given."""

    code = "INVALID_PARAMS"
    http_status = 404

    def __init__(self, name: str, nearest: list[str]) -> None:
        hint = f"{_similar_names('prompt', nearest)}; prompts/list shows all"
        super().__init__(f"Unknown prompt: {name[:200]!r}", hint=hint)


class ResourceNotFound(HeadgateError):
    """No server has a resource of this URI for this caller."""

    code = "INVALID_PARAMS"
    http_status = 404

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"Resource not found: {uri[:500]!r}",
            hint="resources/list and resources/templates/list show all; headgate://SERVER/URI names a server",
        )


def _similar_names(kind: str, names: list[str]) -> str:
    return f"nearest: {', '.join(names)}" if names else f"no {kind} has a similar name"
