"""Every tool of 98 real catalogs comes back whole, and every part of it is reached by its path."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from headgate.catalog.listing_validation import validate_listing
from headgate.domain.item import Item, ItemKind, publish_item
from tests.catalog.expand_schema.expand_schema_client import ExpandSchemaClient, blocks
from tests.real.listing_text import items, members
from tests.real.test_catalogs import DATA, catalogs

_DEEPEST = 4


def real_tools() -> Iterator[Item]:
    sources = dict(catalogs()) | {"odd": (DATA / "odd-tools.json").read_text(encoding="utf-8")}
    for server, listing in sources.items():
        (start,) = [start for key, start, _ in members(listing) if key == "tools"]
        taken = validate_listing(server, ItemKind.TOOLS, [text.encode() for text in items(listing, start)])
        for source in taken.sources:
            # Names that are never two alike, as the catalog's are.
            yield publish_item(ItemKind.TOOLS, server, source, f"{server}:{source.name}")


@pytest.fixture(scope="module")
def tools() -> list[Item]:
    return list(real_tools())


async def expanded(desk: ExpandSchemaClient, tool: Item, path: list[str], mode: str) -> str:
    return blocks(await desk.answer({"toolName": tool.public_name, "path": path, "mode": mode}))[0]


def rebuilt(docs: str, schema: str) -> dict[str, Any]:
    """A definition from the two texts that a model gets of it."""
    definition: dict[str, Any] = json.loads(docs) | {"inputSchema": json.loads(schema)}
    return definition


def spans(text: str) -> dict[str, str]:
    return {key: text[start:end] for key, start, end in members(text)}


async def test_schema_and_docs_together_are_the_definition(tools: list[Item]) -> None:
    assert len(tools) > 3_250
    desk = ExpandSchemaClient(*tools)
    for tool in tools:
        schema = await expanded(desk, tool, [], "schema")
        docs = await expanded(desk, tool, [], "docs")
        original = spans(tool.definition.decode())
        assert {**spans(docs), "inputSchema": schema} == original
        assert rebuilt(docs, schema) == json.loads(tool.definition)


# Some twenty thousand of them.
@pytest.mark.timeout(180)
async def test_every_property_is_found_by_its_path(tools: list[Item]) -> None:
    desk = ExpandSchemaClient(*tools)
    walked = 0
    for tool in tools:
        schema = json.loads(tool.definition)["inputSchema"]
        for path, part in properties(schema, schema):
            found = json.loads(await expanded(desk, tool, path, "schema"))
            assert found == part, (tool.public_name, path)
            walked += 1
    assert walked > 15_000


async def test_a_property_tells_its_own_description(tools: list[Item]) -> None:
    desk = ExpandSchemaClient(*tools)
    for tool in tools:
        schema = json.loads(tool.definition)["inputSchema"]
        for path, part in islice(properties(schema, schema), 2):
            prose = json.loads(await expanded(desk, tool, path, "docs"))
            assert prose.get("description") == part.get("description"), (tool.public_name, path)


def properties(schema: Any, root: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Any]]:
    """The path of each property, and what a reader of JSON Schema finds there."""
    schema = referred(schema, root)
    if not isinstance(schema, dict) or len(at) > _DEEPEST:
        return
    for name, inner in schema.get("properties", {}).items():
        path = (*at, name)
        yield list(path), referred(inner, root)
        yield from properties(inner, root, path)
    for position, branch in enumerate(schema.get("anyOf", [])):
        yield from properties(branch, root, (*at, "anyOf", str(position)))
    if at and isinstance(schema.get("items"), dict):
        yield from properties(schema["items"], root, (*at, "items"))


def referred(schema: Any, root: Any) -> Any:
    """What a schema that is only a reference stands for."""
    while isinstance(schema, dict) and set(schema) == {"$ref"}:
        target = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[int(step)] if isinstance(target, list) else target[step]
        schema = target
    return schema


async def test_every_property_of_an_element_or_a_branch_is_found_without_saying_so(tools: list[Item]) -> None:
    desk = ExpandSchemaClient(*tools)
    walked = 0
    for tool in tools:
        schema = json.loads(tool.definition)["inputSchema"]
        for path, _ in properties(schema, schema):
            plain = [step for step in path if step not in ("items", "anyOf") and not step.isdigit()]
            if plain != path:
                assert isinstance(json.loads(await expanded(desk, tool, plain, "schema")), dict), plain
                walked += 1
    assert walked > 1_000
