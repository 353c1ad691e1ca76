"""The tools find_vendor_info and neighbours: what is known of an entity, and of those around it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headgate.knowledge.data_model import Entity, Relationship, name_key
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.graph.traversal import (
    MOST_EDGES,
    MOST_EXPANDED,
    MOST_REACHED,
    TraversalOptions,
    TraversalResult,
    VendorNeighbourhood,
    traverse,
    vendor_neighbourhood,
)
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
    check_fields,
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
    entities: int
    relationships: int


_MOST_IN: Final = {
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
    vendor_name: str
    response_mode: ResponseMode
    include_relationships: bool
    page_size: int | None
    fields: tuple[str, ...] | None

    @property
    def bound(self) -> dict[str, object]:
        return {
            "vendor_name": name_key(self.vendor_name),
            "setting of include_relationships": self.include_relationships,
        }

    def fields_in(self, mode: ResponseMode) -> tuple[str, ...]:
        return self.fields or VENDOR_FIELDS[mode]

    def limits_in(self, mode: ResponseMode) -> VendorLimits:
        """How many its answer has in this mode; none of what no field shows."""
        fields = self.fields_in(mode)
        entities, relationships = (
            _MOST_IN[mode] if self.page_size is None else (self.page_size, self.page_size)
        )
        if _ENTITIES.isdisjoint(fields):
            entities = 0
        if _RELATIONSHIPS.isdisjoint(fields) or not self.include_relationships:
            relationships = 0
        return VendorLimits(entities, relationships)


async def find_vendor_info(graph: GraphReader, vendors: EntityLookup, call: ToolCall) -> dict[str, Any]:
    """The vendor and one page of what is around it; raises KnowledgeError."""
    question = msgspec.convert(call.arguments, VendorQuery)
    modes = modes_with(question.fields, question.response_mode, VENDOR_FIELDS)

    async def snapshot() -> PageSnapshot[VendorNeighbourhood]:
        # First, so that a change during the reads is noticed.
        revision = await vendors.revision()
        found = await vendor_neighbourhood(graph, await vendors.find_vendor(question.vendor_name))
        if question.include_relationships:
            return PageSnapshot((found.entity_ids, found.relationship_ids), revision, found)
        return PageSnapshot((found.entity_ids, ()), revision, found, len(found.relationship_ids))

    opened = await call.open(question.bound, snapshot)
    price = _vendor_price(question, opened)
    mode, reservation = call.budget.reserve_estimate(call.caller, price, modes)
    with reservation as reserved:
        return await reserved.charge(await _vendor_page(graph, question, mode, opened, call))


async def _vendor_page(
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
    view = await _vendor_view(graph, mode, opened.snapshot.about, entities, relationships)
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
            page_size=question.page_size or _MOST_IN[mode].entities,
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


async def _vendor_view(
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


def _vendor_price(question: VendorQuery, opened: OpenedSnapshot[VendorNeighbourhood]) -> CostEstimate:
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


_ENTITY_FIELDS: Final = ("entity_id", "name", "entity_type", "hop", "confidence", "mentions", "via")
_OF_ENTITIES: Final = frozenset(_ENTITY_FIELDS)
_NEIGHBOUR_FIELDS: Final = (*_ENTITY_FIELDS, "relationships")
# By type, most frequent first.
_MOST_TYPES: Final = 20
_CUT: Final = {
    1: Notice(
        level="warning",
        code="TRUNCATED",
        message=f"There are more than {MOST_REACHED} entities, of which the surest were kept",
        suggestion="ask for fewer: a higher min_confidence, or some relationship_types",
    ),
    2: Notice(
        level="warning",
        code="TRUNCATED",
        message=f"At most {MOST_EXPANDED} neighbours were walked on from, along about {MOST_EDGES} "
        f"relationships, and at most {MOST_REACHED} entities kept",
        suggestion="ask for fewer: hops 1, a higher min_confidence, or some relationship_types",
    ),
}


class NeighboursQuery(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    terms: TraversalOptions
    page_size: int
    fields: tuple[str, ...]

    @property
    def bound(self) -> dict[str, object]:
        return {
            "entity": name_key(self.name),
            "number of hops": self.terms.hops,
            "choice of entity_types": sorted(self.terms.entity_types),
            "choice of relationship_types": sorted(self.terms.relationship_types),
            "min_confidence": self.terms.min_confidence,
        }


class NeighboursResult(msgspec.Struct, frozen=True):
    """The start of a traversal, and the entities it reached."""

    start: Entity
    walk: TraversalResult
    # The neighbours of other types, where there is none of the requested types.
    instead: VendorNeighbourhood | None = None


async def neighbours(graph: GraphReader, vendors: EntityLookup, call: ToolCall) -> dict[str, Any]:
    """One page of neighbours, the nearest and surest first; raises KnowledgeError."""
    question = _neighbours_query(call.arguments)

    async def snapshot() -> PageSnapshot[NeighboursResult]:
        # First, so that a change during the reads is noticed.
        revision = await vendors.revision()
        start = await vendors.find_entity(question.name)
        walked = await traverse(graph, start.id, question.terms)
        related = sum(map(len, walked.leading.values()))
        missed = question.terms.chooses_types and not walked.reached
        if missed and walked.unsure:
            # Neighbours below the minimum confidence have a notice of their own.
            however_unsure = msgspec.structs.replace(question.terms, min_confidence=0.0)
            missed = not (await traverse(graph, start.id, however_unsure)).reached
        instead = await vendor_neighbourhood(graph, start) if missed else None
        result = NeighboursResult(start, walked, instead)
        return PageSnapshot((tuple(walked.reached),), revision, result, related)

    opened = await call.open(question.bound, snapshot)
    with call.budget.reserve_estimate(call.caller, _neighbours_price(question, opened))[1] as reserved:
        ids = opened.snapshot.lists[0]
        page = await page_of(ids, opened.offsets[0], question.page_size, graph.entities)
        return await reserved.charge(await _neighbours_page(graph, question, opened, page, call))


async def _neighbours_page(
    graph: GraphReader,
    question: NeighboursQuery,
    opened: OpenedSnapshot[NeighboursResult],
    page: SnapshotPage[Entity],
    call: ToolCall,
) -> dict[str, Any]:
    around, total = opened.snapshot.about, len(opened.snapshot.lists[0])
    leading = [id for entity, _ in page.items for id in around.walk.leading.get(entity, ())]
    relationship_ids = leading if "relationships" in question.fields else []
    relationships = await graph.relationships(relationship_ids) if relationship_ids else {}
    ends = {end for one in relationships.values() for end in (one.source_id, one.target_id)}
    reached = [around.walk.reached[id] for id, _ in page.items]
    ends |= {one.via for one in reached if one.via is not None}
    names = {**await graph.entities(sorted(ends)), **dict(page.items)}
    answer: dict[str, Any] = {"entity_id": around.start.id, "name": around.start.name}
    if not _OF_ENTITIES.isdisjoint(question.fields):
        answer["entities"] = []
        for one in reached:
            between = names.get(one.via) if one.via is not None else None
            view = entity_fields(names[one.entity_id]) | {
                "hop": one.hop,
                # The confidence of the path to it.
                "confidence": round(one.confidence, 6),
                "via": None if between is None else {"entity_id": between.id, "name": between.name},
            }
            answer["entities"].append(select_fields(view, question.fields))
    if "relationships" in question.fields:
        related = [relationships[id] for id in relationship_ids if id in relationships]
        answer["relationships"] = [relationship_fields(one, names) for one in related]
    answer["total_found"] = total
    answer["execution_time_ms"] = call.elapsed_ms
    answer["pagination"] = call.pagination(
        opened, question.bound, [page.following], page_size=question.page_size, total=total
    )
    warnings = [_CUT[question.terms.hops]] if around.walk.cut else []
    if around.instead is not None:
        warnings.append(_of_other_types(around.instead))
    # Only on the first page.
    elif (unsure := around.walk.unsure) and not opened.offsets[0]:
        left_out = f"{unsure} relationship{' was' if unsure == 1 else 's were'} left out"
        below = Notice(
            level="info",
            code="BELOW_CONFIDENCE",
            message=f"{left_out}: the confidence is below {question.terms.min_confidence:g}",
            suggestion="lower min_confidence to walk along them too",
        )
        warnings.append(below)
    return with_warnings(answer, warnings)


def _of_other_types(around: VendorNeighbourhood) -> Notice:
    there = [
        f"{what} {', '.join(list(types)[:_MOST_TYPES])}"
        for what, types in (
            ("entity_types", around.entity_types),
            ("relationship_types", around.relationship_types),
        )
        if types
    ]
    return Notice(
        level="warning",
        code="NO_SUCH_TYPE",
        message="Nobody within these hops is of the types that were asked for",
        suggestion=f"next to it are {' and '.join(there)}" if there else "it has no neighbours",
    )


def _neighbours_price(question: NeighboursQuery, opened: OpenedSnapshot[NeighboursResult]) -> CostEstimate:
    place = opened.offsets[0]
    ids = opened.snapshot.lists[0][place : place + question.page_size]
    leading = opened.snapshot.about.walk.leading
    related = "relationships" in question.fields

    def tokens(_: ResponseMode, count: int) -> int:
        relationships = sum(len(leading.get(id, ())) for id in ids[:count]) if related else 0
        return FRAME_TOKENS + ENTITY_TOKENS * min(count, len(ids)) + RELATIONSHIP_TOKENS * relationships

    return CostEstimate({ResponseMode.FULL: tokens(ResponseMode.FULL, len(ids))}, tokens, len(ids))


def _neighbours_query(arguments: Mapping[str, Any]) -> NeighboursQuery:
    check_fields(arguments["fields"], _NEIGHBOUR_FIELDS, "neighbours")
    return NeighboursQuery(
        name=arguments["entity"],
        terms=TraversalOptions(
            hops=arguments["hops"],
            entity_types=frozenset(word.upper() for word in arguments["entity_types"] or ()),
            relationship_types=frozenset(word.upper() for word in arguments["relationship_types"] or ()),
            min_confidence=arguments["min_confidence"],
        ),
        page_size=arguments["page_size"],
        fields=arguments["fields"] or _NEIGHBOUR_FIELDS,
    )
