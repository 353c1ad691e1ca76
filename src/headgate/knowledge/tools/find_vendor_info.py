"""find_vendor_info: what is known of a vendor, and of those around it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headgate.knowledge.data_model import Entity, Relationship, name_key
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.graph.traversal import VendorNeighbourhood, vendor_neighbourhood
from headgate.knowledge.interfaces import GraphReader
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.tools.arguments import ToolCall
from headgate.knowledge.tools.cursor_pagination import OpenedSnapshot, PageSnapshot, SnapshotPage, page_of
from headgate.knowledge.tools.definitions import MOST_PER_PAGE
from headgate.knowledge.tools.response_modes import (
    ENTITY_TOKENS,
    FRAME_TOKENS,
    ID_TOKENS,
    RELATIONSHIP_TOKENS,
    TOKENS_PER_RESULT,
    VENDOR_FIELDS,
    WHOLE_ENTITY_TOKENS,
    ResponseMode,
    entity_fields,
    fitting_modes,
    iso_timestamp,
    modes_with,
    relationship_fields,
    select_fields,
    with_warnings,
)
from headgate.knowledge.tools.token_budget import CostEstimate

T = TypeVar("T")


class VendorLimits(NamedTuple):
    """How many an answer has."""

    entities: int
    relationships: int


_MOST: Final = {
    ResponseMode.IDS_ONLY: VendorLimits(1000, 1000),
    ResponseMode.METADATA: VendorLimits(10, 0),
    ResponseMode.PREVIEW: VendorLimits(5, 5),
    ResponseMode.FULL: VendorLimits(100, 500),
}
# Of the chunks that mention the vendor itself.
MOST_PASSAGES: Final = 10
# Fields that have the entities, and those that have the relationships.
_ENTITIES: Final = frozenset({"entity_ids", "top_entities", "entities"})
_RELATIONSHIPS: Final = frozenset({"relationship_ids", "relationships"})
# Modes that return everything.
_WHOLE: Final = (ResponseMode.IDS_ONLY, ResponseMode.FULL)


class VendorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a call."""

    name: str
    modes: tuple[ResponseMode, ...]
    include_relationships: bool
    page_size: int | None
    fields: tuple[str, ...] | None

    @property
    def bound(self) -> dict[str, object]:
        """The key that binds a cursor to its call."""
        return {
            "vendor_name": name_key(self.name),
            "setting of include_relationships": self.include_relationships,
        }

    def fields_in(self, mode: ResponseMode) -> tuple[str, ...]:
        """The fields of its answer in this mode."""
        return self.fields or VENDOR_FIELDS[mode]

    def limits_in(self, mode: ResponseMode) -> VendorLimits:
        """How many its answer has in this mode; none of what no field shows."""
        fields = self.fields_in(mode)
        entities, relationships = _MOST[mode] if self.page_size is None else (self.page_size, self.page_size)
        if _ENTITIES.isdisjoint(fields):
            entities = 0
        if _RELATIONSHIPS.isdisjoint(fields) or not self.include_relationships:
            relationships = 0
        return VendorLimits(entities, relationships)


async def find_vendor_info(graph: GraphReader, vendors: EntityLookup, call: ToolCall) -> dict[str, Any]:
    """The vendor and one page of what is around it; raises KnowledgeError."""
    question = _vendor_query(call.arguments)

    async def snapshot() -> PageSnapshot[VendorNeighbourhood]:
        # First, so that a change during the reads is noticed.
        revision = await vendors.revision()
        found = await vendor_neighbourhood(graph, await vendors.find_vendor(question.name))
        if question.include_relationships:
            return PageSnapshot((found.entity_ids, found.relationship_ids), revision, found)
        return PageSnapshot((found.entity_ids, ()), revision, found, len(found.relationship_ids))

    opened = await call.open(question.bound, snapshot)
    price = _price(question, opened)
    mode, reservation = call.budget.reserve_estimate(call.caller, price, question.modes)
    with reservation as reserved:
        return await reserved.charge(await _page(graph, question, mode, opened, call))


async def _page(
    graph: GraphReader,
    question: VendorQuery,
    mode: ResponseMode,
    opened: OpenedSnapshot[VendorNeighbourhood],
    call: ToolCall,
) -> dict[str, Any]:
    most, requested = question.limits_in(mode), question.fields_in(mode)
    lists, places = opened.snapshot.lists, opened.offsets
    entities = await _paged(lists[0], places[0], most.entities, graph.entities)
    relationships = await _paged(lists[1], places[1], most.relationships, graph.relationships)
    view = await _view(graph, mode, opened.snapshot.about, entities, relationships)
    if "mentioned_in" in requested:
        view["mentioned_in"] = await graph.chunks_mentioning(view["vendor_id"], MOST_PASSAGES)
    is_last = entities.following is None and relationships.following is None
    answer = {
        **select_fields(view, requested),
        "execution_time_ms": call.elapsed_ms,
        "pagination": call.pagination(
            opened,
            question.bound,
            [] if is_last else [entities.place, relationships.place],
            page_size=question.page_size or _MOST[mode].entities,
            total=sum(len(ids) for ids, some in zip(lists, most, strict=True) if some),
        ),
    }
    if is_last or question.page_size is not None or mode not in _WHOLE:
        return answer
    parts = [f"{len(entities.items)} of {len(lists[0])} entities"] if most.entities else []
    if most.relationships:
        parts.append(f"{len(relationships.items)} of {len(lists[1])} relationships")
    truncated = Notice(
        level="warning",
        code="TRUNCATED",
        message=f"This answer has {' and '.join(parts)}",
        suggestion="call again with the cursor for the rest, or use response_mode metadata for the numbers",
    )
    return with_warnings(answer, [truncated])


async def _view(
    graph: GraphReader,
    mode: ResponseMode,
    about: VendorNeighbourhood,
    entities: SnapshotPage[Entity],
    relationships: SnapshotPage[Relationship],
) -> dict[str, Any]:
    """The fields of all modes, in the form of this mode."""
    vendor, whole = about.vendor, mode is ResponseMode.FULL
    names: dict[int, Entity] = {}
    if mode is not ResponseMode.IDS_ONLY:
        ends = {id for _, one in relationships.items for id in (one.source_id, one.target_id)} - {vendor.id}
        names = {**(await graph.entities(sorted(ends)) if ends else {}), vendor.id: vendor}
    listed = [entity_fields(entity, whole=whole) for _, entity in entities.items]
    return {
        "vendor_id": vendor.id,
        "vendor_name": vendor.name,
        "vendor_type": vendor.type,
        "aliases": list(vendor.aliases),
        "attributes": vendor.attributes,
        "statistics": {
            "entity_count": len(about.entity_ids),
            "relationship_count": len(about.relationship_ids),
            "entity_type_distribution": about.entity_types,
            "relationship_type_distribution": about.relationship_types,
        },
        "entity_ids": [id for id, _ in entities.items],
        "relationship_ids": [id for id, _ in relationships.items],
        "top_entities": listed,
        "entities": listed,
        "relationships": [relationship_fields(one, names, whole=whole) for _, one in relationships.items],
        "last_updated": iso_timestamp(about.updated),
    }


async def _paged(
    ids: Sequence[int], start: int, size: int, read: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]]
) -> SnapshotPage[T]:
    """A page of the returned list; of another list nothing, and its position is unchanged."""
    return await page_of(ids, start, size, read) if size else SnapshotPage((), None, start)


def _price(question: VendorQuery, opened: OpenedSnapshot[VendorNeighbourhood]) -> CostEstimate:
    entities_left, relationships_left = (
        max(0, len(ids) - place) for ids, place in zip(opened.snapshot.lists, opened.offsets, strict=True)
    )

    def tokens(mode: ResponseMode, page_size: int | None) -> int:
        most = msgspec.structs.replace(question, page_size=page_size).limits_in(mode)
        entities = min(entities_left, most.entities)
        relationships = min(relationships_left, most.relationships)
        if mode is ResponseMode.IDS_ONLY:
            return FRAME_TOKENS + ID_TOKENS * (entities + relationships)
        each = WHOLE_ENTITY_TOKENS if mode is ResponseMode.FULL else ENTITY_TOKENS
        # All but the ids begin with what metadata has too: the statistics.
        frame = TOKENS_PER_RESULT[ResponseMode.METADATA]
        return frame + each * entities + RELATIONSHIP_TOKENS * relationships

    modes = fitting_modes(question.fields, VENDOR_FIELDS)
    most = question.page_size or MOST_PER_PAGE
    return CostEstimate({mode: tokens(mode, question.page_size) for mode in modes}, tokens, most)


def _vendor_query(arguments: Mapping[str, Any]) -> VendorQuery:
    fields, mode = arguments["fields"], ResponseMode(arguments["response_mode"])
    return VendorQuery(
        name=arguments["vendor_name"],
        modes=modes_with(fields, mode, VENDOR_FIELDS),
        include_relationships=arguments["include_relationships"],
        page_size=arguments["page_size"],
        fields=fields,
    )
