"""The closed list of what a gateway may change between a server and a client; anything else is a fault.

Every function takes the source text of what the server sent and returns what the client must receive:

1. ids, progress tokens and public names are the gateway's own: the value changes, nothing around it;
2. a handshake server's result gets `resultType` for a stateless client, one of resources/read `ttlMs` and
   `cacheScope` too;
3. a stateless server's result loses the connection keys of its `_meta`, and for a handshake client also
   `resultType` and, in resources/read, `ttlMs` and `cacheScope`;
4. a listing is put together from those of all servers: its items stay, `nextCursor`, `ttlMs`, `cacheScope`
   and `_meta` around them are the gateway's;
5. notifications: an update of a resource reaches only who subscribed to it, log messages and
   list changes that concern no particular client are sent to no particular client;
6. of a server some of whose URIs clients know under another name, the links and embedded resources in the
   results of tools and prompts bear that name;
7. an object of which a member was changed or taken out has no blanks between its other members any more;
8. an answer that refuses the arguments of a tool has the schema that they must have as well;
9. where results may be truncated, a tool whose output schema has no place for another member is listed
   without that schema: clients that show `structuredContent` alone could not tell a truncated result from a
   whole one (decision 0052).
10. what a server wrote in the form of a notice of the gateway is marked as the server's (decision 0076); no
   recorded server did.

The gateway also repairs odd tools and hides from a handshake client what its era forbids; no recorded server
gives a reason for that, so nothing of the kind is allowed here.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.real.listing_text import items, members
from tests.replay.recording import Exchange, member_text

CONNECTION_KEYS = "io.modelcontextprotocol/"
COMPLETE = '"resultType":"complete"'
UNCACHED = '"ttlMs":0,"cacheScope":"private"'
READ = "resources/read"
INVALID_PARAMS = -32602
LINKING = ("tools/call", "prompts/get")
# What is left of 64 characters when a client has put `mcp__headgate__` before a name.
LONGEST_NAME = 49


def expected(
    exchange: Exchange, server_era: str, client_era: str, public: str, public_uri: Callable[[str], str]
) -> str:
    """The source text of the result or the error; `public` is what the client calls what it asked about."""
    if exchange.error is not None:
        return exchange.error
    assert exchange.result is not None
    result = exchange.result
    if exchange.method == READ and public != exchange.params["uri"]:
        result = with_public_uri(result, exchange.params["uri"], public)
    elif exchange.method in LINKING:
        result = with_links(result, public_uri)
    if server_era == "handshake":
        return result if client_era == "handshake" else typed(result, exchange.method)
    dropped = {"resultType"} if client_era == "handshake" else set()
    if client_era == "handshake" and exchange.method == READ:
        dropped |= {"ttlMs", "cacheScope"}
    return without(without_connection_keys(result), dropped)


def typed(result: str, method: str) -> str:
    """The result in the words of the stateless era."""
    opening = f"{COMPLETE},{UNCACHED}" if method == READ else COMPLETE
    return "{" + opening + ("" if result == "{}" else ",") + result[1:]


def without_connection_keys(result: str) -> str:
    meta = parts(member_text(result, "_meta") or "{}")
    kept = {key: value for key, value in meta.items() if not key.startswith(CONNECTION_KEYS)}
    if len(kept) == len(meta):
        return result
    return joined(parts(result) | {"_meta": joined(kept)}) if kept else without(result, {"_meta"})


def with_public_uri(result: str, uri: str, public: str) -> str:
    """What was read, under the URI that the client asked for."""
    contents = [parts(content) for content in items(member_text(result, "contents") or "[]", 0)]
    for content in contents:
        if json.loads(content["uri"]) == uri:
            content["uri"] = json.dumps(public)
    return joined(parts(result) | {"contents": f"[{','.join(map(joined, contents))}]"})


def with_links(result: str, public_uri: Callable[[str], str]) -> str:
    """The result with another name for what it links to or embeds."""
    changed = {
        key: f"[{','.join(with_link(block, public_uri) for block in items(value, 0))}]"
        for key, value in parts(result).items()
        if key in ("content", "messages")
        and any(with_link(block, public_uri) != block for block in items(value, 0))
    }
    return joined(parts(result) | changed) if changed else result


def with_link(block: str, public_uri: Callable[[str], str]) -> str:
    found = parts(block)
    changed: dict[str, str] = {}
    if "uri" in found and public_uri(json.loads(found["uri"])) != json.loads(found["uri"]):
        changed["uri"] = json.dumps(public_uri(json.loads(found["uri"])))
    for key in ("resource", "content"):
        if found.get(key, "").startswith("{") and with_link(found[key], public_uri) != found[key]:
            changed[key] = with_link(found[key], public_uri)
    return joined(found | changed) if changed else block


def definition(text: str, key: str, public: str, *, truncated: bool = False) -> str:
    """One item of a listing under its public name; `truncated` is whether the gateway truncates results."""
    if truncated and is_closed(json.loads(text).get("outputSchema", {})):
        text = without_member(text, "outputSchema")
    return with_member(text, key, json.dumps(public, ensure_ascii=False))


def is_closed(schema: Any) -> bool:
    """Whether an object has no place for a member of another name, as recorded schemas say it."""
    if schema.get("additionalProperties", {}) not in ({}, True) or schema.get("type") == "array":
        return True
    return any(is_closed(branch) for branch in schema.get("oneOf", ()))


def plain_name(server: str, name: str) -> str:
    """The public name of a tool or prompt that is short enough and unique."""
    words = [
        re.sub(r"_+", "_", re.sub(r"[^a-z0-9_]", "_", text.lower())).strip("_") for text in (server, name)
    ]
    of_server, own = words
    # A tool whose name begins with its server's is called by it alone.
    return own if own == of_server or own.startswith(f"{of_server}_") else f"{of_server}_{own}"


def progress(params: str, token: str) -> str:
    """The params of a progress notification under the client's token, which stands first."""
    return "{" + f'"progressToken":{json.dumps(token)},' + without(params, {"progressToken"})[1:]


def with_member(text: str, wanted: str, value: str) -> str:
    """The object with another value of one member, every other byte as it was."""
    ((start, end),) = [(start, end) for key, start, end in members(text) if key == wanted]
    return text[:start] + value + text[end:]


def without_member(text: str, dropped: str) -> str:
    """The object without one member and the comma before or behind it, every other byte as it was."""
    found = list(members(text))
    ((at, end),) = [(at, end) for at, (key, _, end) in enumerate(found) if key == dropped]
    if at:
        return text[: found[at - 1][2]] + text[end:]
    return text[: text.index("{") + 1] + text[text.index('"', end) :]


def without(text: str, dropped: set[str]) -> str:
    """The object without some of its members; the same bytes if it has none of them."""
    found = parts(text)
    kept = {key: value for key, value in found.items() if key not in dropped}
    return text if len(kept) == len(found) else joined(kept)


def parts(text: str) -> dict[str, str]:
    """The source text of each value of an object."""
    return {key: text[start:end] for key, start, end in members(text)}


def joined(found: dict[str, str]) -> str:
    """An object that had to be opened: the same values in the same order, no blanks between them."""
    return (
        "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{value}" for key, value in found.items()) + "}"
    )


def has_schema(content: str, public: str) -> bool:
    """Whether an answer carries the schema that its arguments must have."""
    answer = json.loads(content)
    if "input_schema" in (answer.get("data") or {}):
        return bool(answer["code"] == INVALID_PARAMS)
    blocks = answer.get("content") or [{}]
    return answer.get("isError") is True and blocks[-1].get("text", "").startswith(
        f"input_schema of {public}: "
    )


def without_schema(content: str) -> Any:
    """The answer as the server gave it."""
    answer = json.loads(content)
    if "data" in answer:
        del answer["data"]
    else:
        answer["content"].pop()
    return answer
