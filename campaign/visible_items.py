"""What clients are shown of several servers: cache hints, schemas, names that collide (R15, R17, R19)."""

import itertools
import shlex
import time
from pathlib import Path
from typing import Any

import msgspec

from campaign.bystander import bystander
from campaign.honeypot import Well, digging
from campaign.paged import OWN
from campaign.streams import accept
from campaign.trial import Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import chatty, misbehaving

# Between two servers that connect one after the other.
_STEP_SECONDS = 0.8
_PUBLIC = {"ttlMs": 60_000, "cacheScope": "public"}
_SHORTER = {"ttlMs": 5_000, "cacheScope": "public"}
_PRIVATE = {"ttlMs": 90_000, "cacheScope": "private"}
_LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@case(
    "R15",
    "cache hints of several servers: public, private, absent, nonsense",
    "the strictest holds for all pages; absent is 0 and private; questions are never kept",
)
async def cache_hints(trial: Trial) -> None:
    """What was put together from several answers may be kept as long as the strictest of them."""
    mixes: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
        "public and public": ({"a": _PUBLIC, "b": _SHORTER}, (5_000, "public")),
        "public and private": ({"a": _PUBLIC, "b": _PRIVATE}, (60_000, "private")),
        "public and absent": ({"a": _PUBLIC, "b": {}}, (0, "private")),
        "public and nonsense": (
            {"a": _PUBLIC, "b": {"ttlMs": -5, "cacheScope": "everybody"}},
            (0, "private"),
        ),
        "public and handshake era": ({"a": _PUBLIC, "b": None}, (0, "private")),
    }
    wrong = []
    for number, (label, (hints, wanted)) in enumerate(mixes.items()):
        directory = trial.directory / f"mix{number}"
        directory.mkdir()
        servers = {name: _hinting(directory, name, hint) for name, hint in hints.items()}
        async with trial.gateway(servers, settings={"pageBytes": 4096}) as gateway:
            async with client(gateway.port, modern=True) as caller:
                for method in _LISTS:
                    pages = await _pages(caller, method)
                    seen = {(page.get("ttlMs"), page.get("cacheScope")) for page in pages}
                    if seen != {wanted}:
                        wrong.append(f"{label}, {method}: {seen} instead of {wanted}")
                await _check_reads(trial, caller, label, hints)
            async with client(gateway.port) as caller:
                plain = (await caller.request("tools/list")).result
                trial.check(f"{label}: no hints in the handshake era", "ttlMs" not in plain, list(plain))
    trial.measure("mixes", f"{len(mixes)}, listings with another hint than the strictest: {len(wrong)}")
    trial.check("the strictest holds, on every page", not wrong, wrong[:4])


def _hinting(directory: Path, name: str, hints: dict[str, Any] | None) -> dict[str, Any]:
    many = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(60)]
    script = {
        "tools": many,
        "prompts": [{"name": "greet"}],
        "resources": [{"uri": f"{name}://one", "name": "one"}],
        "resourceTemplates": [{"uriTemplate": f"{name}://{{id}}", "name": "some"}],
        "hints": hints or {},
        "read_hints": hints or {},
    }
    return chatty(directory, name, *(() if hints is None else ("--era", "stateless")), script=script)


async def _pages(caller: Client, method: str) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    cursor = None
    while cursor or not pages:
        answer = await caller.request(method, {"cursor": cursor} if cursor else {})
        pages.append(answer.result)
        cursor = answer.result.get("nextCursor")
    return pages


async def _check_reads(trial: Trial, caller: Client, label: str, hints: dict[str, Any]) -> None:
    """A resource is one server's, so its own hints hold; a question must not be kept at all."""
    for name, hint in hints.items():
        if hint is None or "ttlMs" not in hint or hint["ttlMs"] < 0:
            continue
        read = (await caller.request("resources/read", {"uri": f"{name}://one"})).result
        kept = {key: read.get(key) for key in ("ttlMs", "cacheScope")}
        trial.check(f"{label}: the hints of {name}'s resource pass", kept == hint, kept)
    asking = Client(caller.port, modern=True, capabilities={"elicitation": {}})
    asked = (await asking.request("tools/call", {"name": "a_ask", "arguments": {}})).result
    trial.check(f"{label}: a question has no hints", "ttlMs" not in asked, list(asked))
    more = {
        "inputResponses": {key: accept(each) for key, each in asked["inputRequests"].items()},
        "requestState": asked["requestState"],
    }
    answered = await asking.request("tools/call", {"name": "a_ask", "arguments": {}, **more})
    trial.check(f"{label}: nor has the answer after it", "ttlMs" not in answered.result, answered.raw[:200])
    asking.close()


def _bombs(well: Well) -> dict[str, dict[str, Any]]:
    """Tools whose schemas point elsewhere, or cost dearly who looks at them closely."""
    web, file = well.web, well.file
    mirrored = {"type": "string", "x-mcp-header": "Region"}
    deep: dict[str, Any] = dict(mirrored)
    for _ in range(300):
        deep = {"type": "object", "properties": {"p": deep}}
    schemas: dict[str, dict[str, Any]] = {
        "ref_web": {
            "properties": {"a": {"$ref": web}},
            "allOf": [{"$ref": web}],
            "$defs": {"x": {"$dynamicRef": web}},
        },
        "ref_file": {"properties": {"a": {"$ref": file}}, "allOf": [{"$ref": file}]},
        "ref_header": {"properties": {"a": {"$ref": web}, "region": mirrored}},
        "ref_self": {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties/b"}}},
        "schema_elsewhere": {"$schema": web, "$id": web, "properties": {}},
        "huge": {"anyOf": [{"type": "string", "maxLength": number} for number in range(100_000)]},
        "dense": {"anyOf": [{}] * 100_000},
        "huge_header": {
            "properties": {"region": mirrored},
            "anyOf": [{"required": [f"k{number}"]} for number in range(100_000)],
        },
        "deep_header": deep,
        "evil_pattern": {
            "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}},
            "patternProperties": {"(x*)*y": {}},
        },
    }
    return {
        name: {
            "name": name,
            "inputSchema": {"type": "object"} | schema,
            "outputSchema": {"type": "object", "$ref": web},
        }
        for name, schema in schemas.items()
    }


@case(
    "R17",
    "schemas with $ref to http and file; 100,000 subschemas; deep ones; evil patterns",
    "nothing is fetched; the tool is served or left out; others are not held up",
    quick_seconds=60,
)
async def schema_bombs(trial: Trial) -> None:
    """A schema is carried and not followed, and a costly one costs its own server at most."""
    async with digging(trial.directory) as well:
        bombs = _bombs(well)
        servers = {
            "bomber": chatty(trial.directory, "bomber", script={"tools": list(bombs.values())}),
            "modern": chatty(
                trial.directory, "modern", "--era", "stateless", script={"tools": list(bombs.values())}
            ),
            "steady": misbehaving(),
        }
        # Each of the two listings is 7 MB, read in one piece.
        async with trial.gateway(servers, ready=["steady"], stall_seconds=0.25) as gateway:
            usage = Usage(gateway)
            async with bystander(trial, gateway, "steady_echo"):
                await gateway.wait_ready(servers, 20)
                for modern in (False, True):
                    async with client(gateway.port, modern=modern) as caller:
                        started = time.monotonic()
                        names = await caller.list_tools()
                        trial.measure(
                            f"{'new' if modern else 'old'} client lists", time.monotonic() - started, "s"
                        )
                        await _check_bombs(trial, caller, names, bombs)
            left = (await gateway.servers())["bomber"].get("tools_left_out", {})
            trial.measure("left out", f"{len(left)} of {len(bombs)}")
            trial.measure("fetched", f"{well.hits} over HTTP, {int(well.opened())} files")
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            trial.check("what is too large is left out, with the reason", len(left) >= 2, left)
            trial.check("nothing was fetched", well.hits == 0 and not well.opened(), well.hits)
            trial.check(
                "RSS at most +256 MB", usage.peak_growth_mib <= 256, f"{usage.peak_growth_mib:.0f} MB"
            )


async def _check_bombs(trial: Trial, caller: Client, names: list[str], bombs: dict[str, Any]) -> None:
    era = "new" if caller.modern else "old"
    trial.check(
        f"{era}: the others are listed",
        {"bomber_echo", "modern_echo", "steady_echo"} <= set(names),
        len(names),
    )
    for server in ("bomber", "modern"):
        for name in bombs:
            if f"{server}_{name}" not in names:
                continue
            headers = {"Mcp-Param-Region": "eu"} if "header" in name and name != "deep_header" else {}
            params = {"name": f"{server}_{name}", "arguments": {"a": "a" * 40 + "!", "region": "eu"}}
            answer = await caller.exchange(
                caller.post("tools/call", params, headers if caller.modern else None)
            )
            trial.check(f"{era}: {server} {name} can be called", answer.ok, answer.raw[:200])


@case(
    "R19",
    "two servers with the same names, URIs, templates, serverInfo; one that claims the other's",
    "every name leads to its own server, also after a restart in another order; "
    "the same names in whatever order the servers connect",
    quick_seconds=90,
)
async def collisions(trial: Trial) -> None:
    """The first owner of a name keeps it, and no server can take another's."""
    servers = _colliding(trial.directory)
    async with trial.gateway(servers, stall_seconds=None) as gateway:
        before = await _names(gateway)
        owners = await _check_owners(trial, gateway, "at first")
        await gateway.stop()
        reversed_order = {"mcpServers": dict(reversed(servers.items()))}
        async with running(gateway.log.parent, reversed_order, gateway.port) as second:
            await second.wait_ready(servers)
            after = await _names(second)
            trial.measure("names", sum(map(len, before.values())))
            moved = {kind: before[kind] ^ after[kind] for kind in before if before[kind] != after[kind]}
            trial.measure("changed by a restart in another order", sum(map(len, moved.values())))
            trial.check("the names are the same after a restart", not moved, moved)
            again = await _check_owners(trial, second, "after a restart")
            trial.check("each name leads where it led before", again == owners, again)
    await _check_orders(trial, servers, owners)


async def _check_orders(trial: Trial, servers: dict[str, Any], owners: dict[str, str]) -> None:
    """New gateways of the same configuration: names lead to the same servers in any order of connecting."""
    different = {}
    orders = list(itertools.permutations(servers))
    for order in orders[: trial.size(quick=3, full=len(orders))]:
        late = {name: _late(servers[name], _STEP_SECONDS * order.index(name)) for name in servers}
        async with trial.gateway(late, stall_seconds=None) as gateway:
            connected = _connected(gateway)
            trial.check(f"they connect as {', '.join(order)}", connected == list(order), connected)
            found = await _check_owners(trial, gateway, f"connected as {', '.join(order)}")
            if found != owners:
                different[order] = dict(found.items() ^ owners.items())
    trial.measure("changed by the order of connections", len(different))
    trial.check("the names are the same in whatever order servers connect", not different, different)


def _late(entry: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same server, which starts later."""
    script = f"sleep {seconds:g}; exec {shlex.join([entry['command'], *entry['args']])}"
    return entry | {"command": "/bin/sh", "args": ["-c", script]}


def _connected(gateway: AsyncGatewayProcess) -> list[str]:
    """The servers in the order in which they were ready."""
    entries = [msgspec.json.decode(line) for line in gateway.log_lines() if "upstream ready" in line]
    return [entry["server"] for entry in entries]


def _colliding(directory: Path) -> dict[str, Any]:
    """`a` with a tool `b_c` and `a_b` with a tool `c` want one name; the last claims others' addresses."""

    def server(name: str, *tools: str, uris: tuple[str, ...] = ("text://same",)) -> dict[str, Any]:
        script = {
            "serverInfo": "trusted",
            "own_tools": False,
            "tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in ("search", *tools)],
            "prompts": [{"name": "greet"}, *({"name": tool} for tool in tools)],
            "resources": [{"uri": uri, "name": "same"} for uri in uris],
            "resourceTemplates": [{"uriTemplate": "text://same/{id}", "name": "same"}],
        }
        return chatty(directory, name, script=script)

    return {
        "a": server("a", "b_c"),
        "a_b": server("a_b", "c"),
        "thief": server("thief", uris=("text://same", "headgate://a/text://same", "HEADGATE://a_b/x")),
    }


async def _names(gateway: AsyncGatewayProcess) -> dict[str, set[str]]:
    async with client(gateway.port, modern=True) as caller:
        found = {}
        keys = ("name", "name", "uri", "uriTemplate")
        for method, key in zip(_LISTS, keys, strict=True):
            member = method.removesuffix("/list").replace("resources/templates", "resourceTemplates")
            items = [item for page in await _pages(caller, method) for item in page[member]]
            found[method] = {item[key] for item in items}
            assert len(found[method]) == len(items), f"{method} lists a name twice"
            found[method] -= set(OWN)
        return found


async def _check_owners(trial: Trial, gateway: AsyncGatewayProcess, when: str) -> dict[str, str]:
    """Call, get and read everything; each answers with its own server's name. Gives the owner of each."""
    names = await _names(gateway)
    answered: dict[str, dict[str, int]] = {}
    found: dict[str, str] = {}
    async with client(gateway.port) as caller:
        for method, key, kind in (
            ("tools/call", "name", "tools/list"), ("prompts/get", "name", "prompts/list"),
            ("resources/read", "uri", "resources/list"),
        ):  # fmt: skip
            owners = answered[method] = dict.fromkeys(("a", "a_b", "thief"), 0)
            for name in sorted(names[kind]):
                owner = _owner(await caller.request(method, {key: name}))
                owners[owner] = owners.get(owner, 0) + 1
                found[f"{method} {name}"] = owner
        stolen = await caller.request("resources/read", {"uri": "headgate://a/text://same"})
        trial.check(f"{when}: an address names its own server", _owner(stolen) == "a", stolen.raw[:200])
    trial.measure(f"answered by, {when}", "; ".join(f"{m} {o}" for m, o in answered.items()))
    wanted = {"tools/call": (2, 2, 1), "prompts/get": (2, 2, 1), "resources/read": (1, 1, 3)}
    for method, owners in answered.items():
        trial.check(f"{when}: {method} reaches each server", tuple(owners.values()) == wanted[method], owners)
    return found


def _owner(answer: Answer) -> str:
    """The server that answered: it says its name first."""
    result = answer.result
    for member in ("content", "contents"):
        if result.get(member):
            return str(result[member][0]["text"]).partition(":")[0]
    messages = result.get("messages")
    return str(messages[0]["content"]["text"]).partition(":")[0] if messages else answer.outcome
