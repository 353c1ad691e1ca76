"""Small catalogs that are asked as a gateway asks them."""

import json
from collections.abc import Sequence
from typing import Any

from headgate.catalog.evaluation.evaluation_report import SearchabilityReport, report_on_catalog
from headgate.catalog.evaluation.labelled_set import run_queries
from headgate.catalog.evaluation.searchability import synthetic_queries_for
from headgate.catalog.finder import Finder
from headgate.catalog.search.tool_document import ToolDocument, document_of
from headgate.domain.item import Item, ItemKind


def item(server: str, name: str, description: str = "", **parameters: str) -> Item:
    """One tool; its parameters by name, each with what is said about it."""
    definition: dict[str, Any] = {"name": name, "description": description}
    if parameters:
        properties = {one: {"description": said} if said else {} for one, said in parameters.items()}
        definition["inputSchema"] = {"type": "object", "properties": properties}
    return Item(ItemKind.TOOLS, server, name, f"{server}_{name}", json.dumps(definition).encode())


def document(server: str, name: str, description: str = "", **parameters: str) -> ToolDocument:
    """One tool as search reads it."""
    return documents([item(server, name, description, **parameters)])[0]


def documents(items: Sequence[Item]) -> list[ToolDocument]:
    """The tools as search reads them."""
    return [document_of(one.server, one.name, one.public_name, one.definition) for one in items]


async def checked(*items: Item) -> SearchabilityReport:
    """What a check of these tools says."""
    own = documents(items)
    asked = synthetic_queries_for(own)
    catalog = list(items)
    finder = Finder(lambda: catalog)
    answers = await run_queries(finder, [one.text for one in asked], lambda done: None)
    await finder.close()
    return report_on_catalog(own, asked, answers, [], version="1", model=None)
