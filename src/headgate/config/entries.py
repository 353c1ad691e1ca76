"""The keys of one entry of `mcpServers`, with their types and ranges."""

from typing import Annotated, Literal

import msgspec

from headgate.config.values import about, between, seconds

Word = Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"]
Builtin = Literal["example"]


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One server as its operator writes it; the sentences are what an editor shows."""

    command: Annotated[str, about("The program to start; its arguments go into args.")] = ""
    args: Annotated[tuple[str, ...], about("The arguments of the command.")] = ()
    env: Annotated[dict[str, str], about("Variables for the command besides PATH, HOME and LANG.")] = {}
    cwd: Annotated[str, about("Where the command starts; relative to the configuration file.")] = ""
    url: Annotated[str, about("The http or https address of a remote server.")] = ""
    headers: Annotated[dict[str, str], about("Headers that go with every request to the url.")] = {}
    builtin: Annotated[Builtin, about("A server that is part of the gateway.")] | None = None
    transport: (
        Annotated[Word, about("How to speak to the server; a url ending in /sse means sse.")] | None
    ) = None
    type: Annotated[Word, about("The same as transport, as VS Code writes it.")] | None = None
    enabled: Annotated[bool, about("Whether the server is used.")] = True
    disabled: Annotated[bool, about("The opposite of enabled, as other clients write it.")] = False
    timeout: Annotated[float, seconds(0.1, 3600, "Seconds for one call; progress starts them anew.")] = 60.0
    max_timeout: Annotated[
        float, seconds(0.1, 86_400, "Seconds for one call whatever its progress; at least the timeout.")
    ] = 900.0
    connect_timeout: Annotated[float, seconds(0.1, 300, "Seconds for connecting.")] = 10.0
    start_timeout: Annotated[
        float, seconds(0.1, 3600, "Seconds from the start to the end of the handshake.")
    ] = 60.0
    max_connections: Annotated[
        int, between(1, 10_000, "The most connections besides the main one, for clients it may ask.")
    ] = 32
    listing: (
        Annotated[
            Literal["full", "slim", "search"],
            about("How its tools are listed, whatever the gateway's mode; search lists none of them."),
        ]
        | None
    ) = None
    pin: Annotated[
        tuple[str, ...], about("Tools that are shown in full before any other; a * stands for anything.")
    ] = ()
    hide: Annotated[
        tuple[str, ...],
        about("Tools that are neither listed, found nor called; a * stands for anything."),
    ] = ()
    rename: Annotated[dict[str, str], about("What clients call a tool, by its name at the server.")] = {}
    shared: Annotated[
        bool, about("Whether all clients share one connection, on which none of them can be asked.")
    ] = False


FIELDS = {field.encode_name: field for field in msgspec.structs.fields(ServerEntry)}
LATER = ("limits", "oauth", "idleTimeout", "hot", "cold", "behaviour")
# How Windsurf and Gemini write it.
ALIASES = {"serverUrl": "url", "httpUrl": "url"}
# A token is often among them, and an error message ends up in a log.
PRIVATE = ("command", "args", "env", "cwd", "url", "headers")
