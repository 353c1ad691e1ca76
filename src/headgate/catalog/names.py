"""Public names: `{server}_{name}`, accepted by every client, never two alike, the same after a restart."""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

# A server, and the name of one of its items there.
Key = tuple[str, str]
# What an item would be called now, whether it is there or not; None if it is hidden.
Wish = Callable[[Key], str | None]

# What model providers allow, less the prefix that a client puts before every name of this gateway.
LONGEST_NAME = 64
# What the gateway's own tools are called; `call` may have a `tool`, which gets another name.
RETRIEVE_TOOLS = "retrieve_tools"
RETRIEVE_TOOL = "retrieve_tool"
CALL_TOOL = "call_tool"
EXPAND_SCHEMA = "expandSchema"
# Those that read large results.
READERS = frozenset(f"proxy_{verb}" for verb in ("filter", "search", "explore", "read", "query"))
# Those that make several calls one whole, and that tell what became of one.
DELIVERY_TOOLS = frozenset(
    {
        "transaction_begin",
        "transaction_step",
        "transaction_commit",
        "transaction_rollback",
        "get_transaction",
        "get_operation",
        "resolve_operation",
    }
)
# Listed behind the tools of servers, where they are listed.
LISTED_LAST = READERS | DELIVERY_TOOLS
OWN_NAMES = frozenset({RETRIEVE_TOOLS, RETRIEVE_TOOL, CALL_TOOL, EXPAND_SCHEMA}) | LISTED_LAST
# No two names may differ by the case of their letters alone.
RESERVED = OWN_NAMES | {EXPAND_SCHEMA.lower()}
_OTHER = re.compile(r"[^a-z0-9_]")
_RUNS = re.compile(r"_+")
_HASH_LENGTH = 6


class Owners(Protocol):
    """Remembers across restarts whose a public name is."""

    def owner(self, public_name: str) -> Key | None:
        """The server and the item that had the name first, if anybody had."""

    def claim(self, names: Mapping[str, Key]) -> None:
        """Remember who owns each of these names now."""


def default_limit(gateway_name: str) -> int:
    """What is left of 64 characters after `mcp__<gateway>__`, the prefix that common clients add."""
    return max(10, LONGEST_NAME - len(f"mcp__{gateway_name}__"))


def public_name(server: str, tool: str, limit: int) -> str:
    """The name of a tool as clients see it, before collisions are looked at."""
    return _uncut(server, tool)[:limit]


def _uncut(server: str, tool: str) -> str:
    return f"{_server_part(server)}{_sanitise(tool) or 'tool'}"


def accepted(name: str, limit: int) -> str:
    """A name that an operator chose, in the letters that every client accepts."""
    return _led(_sanitise(name) or "tool")[:limit]


def beginnings(server: str, limit: int) -> tuple[str, ...]:
    """What every spelling of every tool's name of that server begins with, before and after collisions."""
    return f"{server}:", f"{server}__", _server_part(server)[: _room(limit)]


def _server_part(server: str) -> str:
    return _led(f"{_sanitise(server) or 'server'}_")


def _led(name: str) -> str:
    """Some clients refuse a name that begins with a digit."""
    return f"tool_{name}" if name[0].isdigit() else name


def _sanitise(text: str) -> str:
    return _RUNS.sub("_", _OTHER.sub("_", text.lower())).strip("_")


def with_hash(name: str, server: str, tool: str, limit: int) -> str:
    """The name with a short stable hash, for a tool whose plain name belongs to another."""
    return f"{name[: _room(limit)]}{_ending(server, tool)}"


def _ending(server: str, tool: str) -> str:
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()
    return f"_{digest[:_HASH_LENGTH]}"


def _room(limit: int) -> int:
    """How much of a name is left where a hash follows."""
    return limit - _HASH_LENGTH - 1


def allot(
    tools: Sequence[Key],
    limit: int,
    owners: Owners,
    plain: Mapping[Key, str] | None = None,
    reserved: Collection[str] = (),
    wish: Wish | None = None,
) -> dict[Key, str]:
    """A distinct public name for each tool; `plain` are the names from `public_name`, or from the operator.

    Whoever had a name first keeps it, also when another server of the same name is connected sooner after a
    restart: a call must never reach a tool that the client did not mean. What an operator gave to one tool
    and then to another is the other's: `wish` tells what an owner would be called now.
    """
    plain = plain or {key: public_name(*key, limit) for key in tools}
    # Owners first, so that nobody else takes what is theirs.
    names = {
        key: plain[key] for key in tools if owners.owner(plain[key]) == key and plain[key] not in reserved
    }
    taken = {*names.values(), *reserved}
    claims: dict[str, Key] = {}
    for key in tools:
        if key in names:
            continue
        name = plain[key]
        owner = owners.owner(name)
        if owner is not None and (
            wish is None or _keeps(owner, name, wish, by_itself=name == public_name(*key, limit))
        ):
            name = with_hash(name, *key, limit)
        names[key] = name = _distinct(name, key, taken, limit)
        taken.add(name)
        if owners.owner(name) != key:
            claims[name] = key
    owners.claim(claims)
    return names


def _keeps(owner: Key, name: str, wish: Wish, *, by_itself: bool) -> bool:
    """Whether an owner keeps its name from another tool, which is called so by itself or by its operator."""
    with_its_hash = name.endswith(_ending(*owner))
    # Nobody but an operator takes away what a tool is called by itself, whatever the limit was then.
    if by_itself and (with_its_hash or _uncut(*owner).startswith(name)):
        return True
    wished = wish(owner)
    return wished is not None and (wished == name or with_its_hash)


def _distinct(name: str, key: Key, taken: set[str], limit: int) -> str:
    salt = 0
    while name in taken:
        salt += 1
        name = with_hash(name, key[0], key[1] if salt == 1 else f"{key[1]}\0{salt}", limit)
    return name
