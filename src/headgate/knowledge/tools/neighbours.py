"""neighbours: the entities within one or two hops of one, and how they are related."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.knowledge.data_model import Entity, name_key
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.graph.traversal import (
    MOST_EDGES,
    MOST_EXPANDED,
    MOST_REACHED,
    ReachedEntity,
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
from headgate.knowledge.tools.response_modes import (
    ENTITY_TOKENS,
    FRAME_TOKENS,
    RELATIONSHIP_TOKENS,
    ResponseMode,
    check_fields,
    entity_fields,
    relationship_fields,
    select_fields,
    with_warnings,
)
from headgate.knowledge.tools.token_budget import CostEstimate

_ENTITY_FIELDS: Final = ("entity_id", "name", "entity_type", "hop", "confidence", "mentions", "via")
_OF_ENTITIES: Final = frozenset(_ENTITY_FIELDS)
_FIELDS: Final = (*_ENTITY_FIELDS, "relationships")
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
    """The arguments of a call."""

    name: str
    terms: TraversalOptions
    page_size: int
    fields: tuple[str, ...]

    @property
    def bound(self) -> dict[str, object]:
        """The key that binds a cursor to its call."""
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
    with call.budget.reserve_estimate(call.caller, _price(question, opened))[1] as reserved:
        ids = opened.snapshot.lists[0]
        page = await page_of(ids, opened.offsets[0], question.page_size, graph.entities)
        return await reserved.charge(await _page(graph, question, opened, page, call))


async def _page(
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
        answer["entities"] = [
            select_fields(_view(names[one.entity_id], one, names), question.fields) for one in reached
        ]
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
        suggestion=f"next to it are {' and '.join(there)}" if there else "nobody is next to it",
    )


def _view(entity: Entity, reached: ReachedEntity, names: Mapping[int, Entity]) -> dict[str, Any]:
    between = names.get(reached.via) if reached.via is not None else None
    return {
        **entity_fields(entity),
        "hop": reached.hop,
        # The confidence of the path to it.
        "confidence": round(reached.confidence, 6),
        "via": None if between is None else {"entity_id": between.id, "name": between.name},
    }


def _price(question: NeighboursQuery, opened: OpenedSnapshot[NeighboursResult]) -> CostEstimate:
    place = opened.offsets[0]
    ids = opened.snapshot.lists[0][place : place + question.page_size]
    leading = opened.snapshot.about.walk.leading
    related = "relationships" in question.fields

    def tokens(_: ResponseMode, count: int) -> int:
        relationships = sum(len(leading.get(id, ())) for id in ids[:count]) if related else 0
        return FRAME_TOKENS + ENTITY_TOKENS * min(count, len(ids)) + RELATIONSHIP_TOKENS * relationships

    return CostEstimate({ResponseMode.FULL: tokens(ResponseMode.FULL, len(ids))}, tokens, len(ids))


def _neighbours_query(arguments: Mapping[str, Any]) -> NeighboursQuery:
    check_fields(arguments["fields"], _FIELDS, "neighbours")
    return NeighboursQuery(
        name=arguments["entity"],
        terms=TraversalOptions(
            hops=arguments["hops"],
            entity_types=frozenset(word.upper() for word in arguments["entity_types"] or ()),
            relationship_types=frozenset(word.upper() for word in arguments["relationship_types"] or ()),
            min_confidence=arguments["min_confidence"],
        ),
        page_size=arguments["page_size"],
        fields=arguments["fields"] or _FIELDS,
    )
