"""Public names: `{server}_{name}`, valid for every client, unique, and stable across restarts.

A name that is too long loses parts of the server's key before any part of the tool's own name.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import count
from typing import Protocol

# A server, and the server's own name of one of its items.
Key = tuple[str, str]
# The current plain name of an item, existing or not; None if it is hidden.
PlainNameOf = Callable[[Key], str | None]

# The limit of model providers, less the prefix that a client adds to every name of this gateway.
LONGEST_NAME = 64
# The gateway's own tools; a tool `tool` of a server `call` gets another name.
RETRIEVE_TOOLS = "retrieve_tools"
RETRIEVE_TOOL = "retrieve_tool"
CALL_TOOL = "call_tool"
EXPAND_SCHEMA = "expandSchema"
# The tools that read large results.
RESULT_READERS = frozenset(f"proxy_{verb}" for verb in ("filter", "search", "explore", "read", "query"))
# The tools for transactions and the status of a call.
# fmt: off
DELIVERY_TOOLS = frozenset([
    "transaction_begin", "transaction_step", "transaction_commit", "transaction_rollback",
    "get_transaction", "get_operation", "resolve_operation"
])
# fmt: on
# Listed after the tools of servers, if at all.
LISTED_LAST = RESULT_READERS | DELIVERY_TOOLS
OWN_NAMES = frozenset({RETRIEVE_TOOLS, RETRIEVE_TOOL, CALL_TOOL, EXPAND_SCHEMA}) | LISTED_LAST
# Two names must differ in more than case.
RESERVED = OWN_NAMES | {EXPAND_SCHEMA.lower()}
_OTHER = re.compile(r"[^a-z0-9_]")
_RUNS = re.compile(r"_+")
# Separates vendor and product in the key of a server: `awslabs.x`, `@scope/x`.
_SEGMENTS = re.compile(r"[./]")
HASH_LENGTH = 6
# Words of most server keys, which do not distinguish servers.
_COMMON_WORDS = frozenset({"mcp", "server"})
# The least length of the server part, unless the tool's name contains it.
_SHORTEST_SERVER = 2
_HASHED = re.compile(rf"_[0-9a-f]{{{HASH_LENGTH}}}$")
# A lower limit occurs only before a hash, and has no room for two parts.
_SHORTEST_PAIR = 8


class NameOwners(Protocol):
    """Stores the owners of public names across restarts."""

    def owner(self, public_name: str) -> Key | None:
        """The server and the item that own the name, if any."""

    def claim(self, names: Mapping[str, Key]) -> None:
        """Store the owners of these names."""


def default_limit(gateway_name: str) -> int:
    """The part of 64 characters left after `mcp__<gateway>__`, the prefix that common clients add."""
    return max(10, LONGEST_NAME - len(f"mcp__{gateway_name}__"))


def public_name(server: str, tool: str, limit: int) -> str:
    """The public name of a tool before collisions are resolved."""
    own = sanitise(tool) or "tool"
    part = sanitise(server) or "server"
    name = _joined(part, own)
    if len(name) <= limit:
        return name
    for part in _shorter_parts(server, own):
        name = _joined(part, own)
        if len(name) <= limit:
            return name
    # Nothing else is left to remove: cut the server part, then the tool's name.
    alone = with_leading_letter(own)
    if limit < _SHORTEST_PAIR or len(name) <= len(alone):
        return alone[:limit].rstrip("_")
    kept = max(_SHORTEST_SERVER, len(part) - (len(name) - limit))
    return with_leading_letter(f"{part[:kept].rstrip('_')}_{own}")[:limit].rstrip("_")


def _joined(part: str, own: str) -> str:
    """Both parts, or the tool's name alone if it contains the server's words."""
    return with_leading_letter(own if f"{own}_".startswith(f"{part}_") else f"{part}_{own}")


def _shorter_parts(server: str, own: str) -> Iterator[str]:
    """Ever shorter forms of the server's key; an empty one is skipped."""
    segments = [words for each in _SEGMENTS.split(server) if (words := _words(sanitise(each)))]
    segments = segments or [["server"]]
    for needless in (_COMMON_WORDS, frozenset(_words(own))):
        left = [words for each in segments if (words := [word for word in each if word not in needless])]
        segments = left or segments
        yield _part(segments)
    while len(segments) > 1:
        segments = segments[1:]
        yield _part(segments)


def _words(text: str) -> list[str]:
    return [word for word in text.split("_") if word]


def _part(segments: Sequence[Sequence[str]]) -> str:
    return "_".join(word for words in segments for word in words)


def sanitised_name(name: str, limit: int) -> str:
    """A name chosen by an operator, in the characters that every client accepts."""
    return with_leading_letter(sanitise(name) or "tool")[:limit].rstrip("_")


def with_leading_letter(name: str) -> str:
    """The name with a letter before a leading digit, which some clients refuse."""
    return f"tool_{name}" if name[0].isdigit() else name


def sanitise(text: str) -> str:
    """The text in the characters that every client accepts; may be empty."""
    return _RUNS.sub("_", _OTHER.sub("_", text.lower())).strip("_")


def with_hash(name: str, server: str, tool: str, limit: int, salt: int = 0) -> str:
    """The name with a short stable hash; the server part makes room, unless an operator chose the name."""
    room = limit - HASH_LENGTH - 1
    by_itself = name == public_name(server, tool, limit)
    kept = public_name(server, tool, room) if by_itself else name[:room].rstrip("_")
    return kept + hash_suffix(server, f"{tool}\0{salt}" if salt else tool)


def hash_suffix(server: str, tool: str) -> str:
    """The hash of a tool as a suffix of a name."""
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()
    return f"_{digest[:HASH_LENGTH]}"


def server_prefix_length(server: str, name: str, limit: int) -> int:
    """The length of the prefix of a public name that identifies this server; 0 without one."""
    if len(name) > limit:
        return 0
    bases = [(name, limit)]
    if _HASHED.search(name):
        bases.append((name[: -HASH_LENGTH - 1], limit - HASH_LENGTH - 1))
    return max(_server_prefix_length(server, base, room) for base, room in bases)


def _server_prefix_length(server: str, name: str, limit: int) -> int:
    part = sanitise(server) or "server"
    # A tool may have the name of its server; a key in other characters is hardly the name of a tool.
    if name == part:
        return len(part) if name == server else 0
    if name.startswith((f"{part}_", with_leading_letter(f"{part}_"))):
        return len(part)
    words = tuple(word[:_SHORTEST_SERVER] for word in _words(part))
    if not name.startswith((*words, "tool_")):
        # A quick test: every shortened key begins with one of its words.
        return 0
    # The server part ends before some `_`, or is gone.
    for end in (*(found.end() for found in re.finditer("_", name)), 0):
        own = name[end:]
        if len(with_leading_letter(f"{part}_{own}")) > limit and name == public_name(server, own, limit):
            return end or 1
        # If the tool's name was cut too, everything after it was left out.
        cut = (public_name(server, own + more, limit) for more in ("x" * limit, "_x" * limit))
        if len(name) >= limit - 1 and name in cut:
            return end or 1
    return 0


def allocate_names(
    tools: Sequence[Key],
    limit: int,
    owners: NameOwners,
    plain: Mapping[Key, str] | None = None,
    reserved: Collection[str] = (),
    plain_name_of: PlainNameOf | None = None,
    configured: Container[str] | None = None,
) -> dict[Key, str]:
    """A unique public name for each tool; `plain` are names from `public_name` or from the operator.

    An owner keeps its name until its server is no longer `configured`: a call must never reach a tool that
    the client did not mean. A name without an owner goes to the first of `tools` by server, and by name
    within a server, because some servers list their tools in another order each time. A name that an operator
    moved from one tool to another belongs to the other: `plain_name_of` gives the current one of an owner.
    """
    plain = plain or {key: public_name(*key, limit) for key in tools}
    # Owners first, so that no other tool takes their names.
    names = {
        key: plain[key] for key in tools if owners.owner(plain[key]) == key and plain[key] not in reserved
    }
    taken = {*names.values(), *reserved}
    claims: dict[str, Key] = {}
    order = {server: place for place, server in enumerate(dict.fromkeys(server for server, _ in tools))}
    for key in sorted(tools, key=lambda key: (order[key[0]], key[1])):
        if key in names:
            continue
        name = plain[key]
        owner = owners.owner(name)
        free = owner is None or _passes_on(owner, key, name, limit, owners, plain_name_of, configured)
        if not free or name in taken:
            hashed = (with_hash(name, *key, limit, salt) for salt in count())
            name = next(one for one in hashed if one not in taken)
        names[key] = name
        taken.add(name)
        if owners.owner(name) != key:
            claims[name] = key
    owners.claim(claims)
    return {key: names[key] for key in tools}


def _passes_on(
    owner: Key,
    key: Key,
    name: str,
    limit: int,
    owners: NameOwners,
    plain_name_of: PlainNameOf | None,
    configured: Container[str] | None,
) -> bool:
    """Whether a name passes from its owner to another tool, which has it by default or by its operator."""
    by_itself = name == public_name(*key, limit)
    if configured is not None and owner[0] not in configured:
        # A tool with a hash keeps it: clients know the tool by that name.
        return not by_itself or owners.owner(with_hash(name, *key, limit)) != key
    with_its_hash = name.endswith(hash_suffix(*owner))
    # Only an operator takes a default name away, whatever the limit was then.
    is_kept = by_itself and (with_its_hash or is_default_name(owner, name))
    if plain_name_of is None or is_kept:
        return False
    wanted_name = plain_name_of(owner)
    return wanted_name is None or (wanted_name != name and not with_its_hash)


def is_default_name(key: Key, name: str) -> bool:
    """Whether a tool has this name by default under some limit, also in version 0.1.0."""
    return public_name(*key, len(name)) == name or former_whole(*key).startswith(name)


def former_whole(server: str, tool: str) -> str:
    """The name of a tool in version 0.1.0, before it was cut."""
    return with_leading_letter(f"{sanitise(server) or 'server'}_") + (sanitise(tool) or "tool")


def former_names(key: Key, limit: int, given: str | None = None) -> tuple[str, str]:
    """The names of a tool in version 0.1.0: alone, and after a collision."""
    whole = former_whole(*key) if given is None else with_leading_letter(sanitise(given) or "tool")
    return whole[:limit], whole[: limit - HASH_LENGTH - 1] + hash_suffix(*key)


def known_prefixes(server: str, limit: int) -> tuple[str, str, str]:
    """The prefixes of alternative spellings, and of all names of version 0.1.0."""
    former = with_leading_letter(f"{sanitise(server) or 'server'}_")[: limit - HASH_LENGTH - 1]
    return f"{server}:", f"{server}__", former
