"""A tool is listed without an output schema that has no place for the notice of a truncated result."""

import json
from typing import Any

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_validation import validate_tool
from headgate.catalog.paged_listing import NO_HINT
from headgate.catalog.stored_listing import DefinitionPosition, StoredListing, places, tool_hashes
from headgate.domain.identity import LOCAL_IDENTITY, everything_visible
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import InMemoryNameOwners, first_page

OPEN = {"type": "object", "properties": {"rows": {"type": "array"}}}
CLOSED = {**OPEN, "additionalProperties": False}
ARRAY = {"type": "array"}


def definition(schema: Any, name: str = "look") -> bytes:
    """A tool whose schema stands between other members, with blanks that must stay."""
    told = {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema, "title": "x"}
    return json.dumps(told).encode()


def catalog(*schemas: Any, truncates: bool = True) -> Catalog:
    made = Catalog(
        name_limit=60,
        prefixed=True,
        page_bytes=1000,
        owners=InMemoryNameOwners(),
        visible=everything_visible,
        truncates=truncates,
    )
    made.set_servers(["bank"])
    names = (f"look{number}" for number in range(len(schemas)))
    made.replace_listing(
        "bank", ItemKind.TOOLS, [definition(*each) for each in zip(schemas, names, strict=True)]
    )
    return made


def listed(catalog: Catalog, era: Era) -> list[Any]:
    return [
        tool.get("outputSchema") for tool in json.loads(b"{" + first_page(catalog, era=era) + b"}")["tools"]
    ]


@pytest.mark.parametrize("era", Era)
def test_only_what_admits_the_notice_is_listed(era: Era) -> None:
    assert listed(catalog(OPEN, CLOSED, ARRAY), era) == [OPEN, None, None]


def test_without_truncation_every_schema_is_listed_that_the_era_allows() -> None:
    whole = catalog(OPEN, CLOSED, ARRAY, truncates=False)
    assert listed(whole, Era.STATELESS) == [OPEN, CLOSED, ARRAY]
    assert listed(whole, Era.HANDSHAKE) == [OPEN, CLOSED, None]


def test_every_other_byte_stays() -> None:
    found = catalog(CLOSED).resolve(ItemKind.TOOLS, "bank_look0", LOCAL_IDENTITY)
    assert found.definition == b'{"name": "bank_look0", "inputSchema": {"type": "object"}, "title": "x"}'
    assert found.handshake_definition == found.definition


def test_what_a_tool_is_known_by_does_not_depend_on_it() -> None:
    source, repairs = validate_tool(definition(CLOSED).decode())
    assert repairs == []
    assert source.definition.text == definition(CLOSED).decode()
    assert source.truncated_definition is not None
    assert tool_hashes(source.definition.text.encode()) == tool_hashes(
        source.truncated_definition.text.encode()
    )


def test_the_same_listing_again_changes_nothing() -> None:
    told = catalog(OPEN, CLOSED)
    before = told.every_tool
    told.replace_listing("bank", ItemKind.TOOLS, [definition(OPEN, "look0"), definition(CLOSED, "look1")])
    assert told.every_tool == before


# What is kept for the next start.


def stored(checked: bool) -> StoredListing:  # noqa: FBT001
    definitions = [definition(OPEN, "look0"), definition(CLOSED, "look1")]
    if checked:
        found = places(definitions, (validate_tool(each.decode())[0] for each in definitions))
    else:
        # As a version wrote them that did not look at output schemas.
        found = [DefinitionPosition(f"look{number}", 9, 16) for number in range(2)]
    return StoredListing("bank", ItemKind.TOOLS, definitions, NO_HINT, found)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("truncates", [True, False])
def test_what_is_remembered_is_listed_by_the_same_rule(*, checked: bool, truncates: bool) -> None:
    made = catalog(truncates=truncates)
    made.restore_listings([stored(checked)])
    assert listed(made, Era.HANDSHAKE) == [OPEN, None if truncates else CLOSED]
    assert stored(checked).is_current is checked


def test_what_an_earlier_version_found_is_not_relied_on() -> None:
    assert stored(checked=False).checked_definitions() == {}
    assert [*stored(checked=True).checked_definitions()] == [definition(OPEN, "look0")]
