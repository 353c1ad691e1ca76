"""find_vendor_info: what is known of a vendor, and of those around it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headgate.domain.call import Caller
from headgate.knowledge import envelope
from headgate.knowledge.fields import modes_with, only
from headgate.knowledge.modes import TOKENS_PER_RESULT, VENDOR_FIELDS, Mode, fitting_modes
from headgate.knowledge.paging import Opened, Page, Pager, Snapshot, page_of
from headgate.knowledge.prices import Price, Till
from headgate.knowledge.query import Warning as Notice
from headgate.knowledge.store import Graph
from headgate.knowledge.tools.arguments import Arguments
from headgate.knowledge.tools.definitions import LONGEST_NAME, MOST_PER_PAGE, arguments_of
from headgate.knowledge.tools.views import (
    ENTITY_TOKENS,
    FRAME_TOKENS,
    ID_TOKENS,
    RELATIONSHIP_TOKENS,
    WHOLE_ENTITY_TOKENS,
    of_entity,
    of_relationship,
)
from headgate.knowledge.values import Entity, Relationship, name_key
from headgate.knowledge.vendors import Vendors
from headgate.knowledge.walking import Surroundings, surroundings

T = TypeVar("T")

NAME: Final = "find_vendor_info"
_KNOWN: Final = arguments_of(NAME)


class Most(NamedTuple):
    """How many an answer has."""

    entities: int
    relationships: int


_MOST: Final = {
    Mode.IDS_ONLY: Most(1000, 1000),
    Mode.METADATA: Most(10, 0),
    Mode.PREVIEW: Most(5, 5),
    Mode.FULL: Most(100, 500),
}
# Of the chunks that speak of the vendor itself.
MOST_PASSAGES: Final = 10
# Fields that have the entities, and those that have the relationships.
_ENTITIES: Final = frozenset({"entity_ids", "top_entities", "entities"})
_RELATIONSHIPS: Final = frozenset({"relationship_ids", "relationships"})
# Those that mean to tell everything.
_WHOLE: Final = (Mode.IDS_ONLY, Mode.FULL)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked for."""

    name: str
    modes: tuple[Mode, ...]
    include_relationships: bool
    page_size: int | None
    cursor: str | None
    fields: tuple[str, ...] | None

    @property
    def bound(self) -> dict[str, object]:
        """What a cursor of its answer belongs to."""
        return {
            "vendor_name": name_key(self.name),
            "setting of include_relationships": self.include_relationships,
        }

    def shown(self, mode: Mode) -> tuple[str, ...]:
        """The fields of its answer in this mode."""
        return self.fields or VENDOR_FIELDS[mode]

    def most(self, mode: Mode) -> Most:
        """How many its answer has in this mode; none of what no field shows."""
        fields = self.shown(mode)
        entities, relationships = _MOST[mode] if self.page_size is None else (self.page_size, self.page_size)
        if _ENTITIES.isdisjoint(fields):
            entities = 0
        if _RELATIONSHIPS.isdisjoint(fields) or not self.include_relationships:
            relationships = 0
        return Most(entities, relationships)


class FindVendorInfo:
    """Answers the tool."""

    def __init__(self, graph: Graph, vendors: Vendors, till: Till, clock: Callable[[], float]) -> None:
        self._graph = graph
        self._vendors = vendors
        self._till = till
        self._clock = clock
        self.pager: Pager[Surroundings] = Pager(NAME, clock, vendors.revision)

    async def answer(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The vendor and one page of what is around it; raises KnowledgeError."""
        began = self._clock()
        question = _question(given)
        opened = await self.pager.open(
            question.cursor, caller, question.bound, lambda: self._snapshot(question)
        )
        price = _price(question, opened)
        mode = self._till.affordable(caller, price, question.modes)
        with self._till.reserve(caller, price, mode) as reserved:
            answer = await self._page(question, mode, opened, caller)
            answer["execution_time_ms"] = round((self._clock() - began) * 1000, 2)
            return await self._till.paid(reserved, answer)

    async def _snapshot(self, question: Question) -> Snapshot[Surroundings]:
        # Asked first: what changes while it is read is then known to have changed.
        revision = await self._vendors.revision()
        found = await surroundings(self._graph, await self._vendors.vendor(question.name))
        if question.include_relationships:
            return Snapshot((found.entity_ids, found.relationship_ids), revision, found)
        return Snapshot((found.entity_ids, ()), revision, found, len(found.relationship_ids))

    async def _page(
        self, question: Question, mode: Mode, opened: Opened[Surroundings], caller: Caller
    ) -> dict[str, Any]:
        most = question.most(mode)
        lists, places = opened.snapshot.lists, opened.places
        entities = await _paged(lists[0], places[0], most.entities, self._graph.entities)
        relationships = await _paged(lists[1], places[1], most.relationships, self._graph.relationships)
        names = await self._names(mode, opened, relationships)
        view = _view(mode, opened.snapshot.about, entities, relationships, names)
        wanted = question.shown(mode)
        if "mentioned_in" in wanted:
            vendor = opened.snapshot.about.vendor
            view["mentioned_in"] = await self._graph.mentioning(vendor.id, MOST_PASSAGES)
        cursor = None
        if entities.following is not None or relationships.following is not None:
            following = [entities.place, relationships.place]
            cursor = self.pager.cursor(opened.snapshot, caller, question.bound, following)
        total = sum(len(ids) for ids, some in zip(lists, most, strict=True) if some)
        answer = {
            **only(view, wanted),
            "execution_time_ms": 0.0,
            "pagination": envelope.pagination(cursor, question.page_size or _MOST[mode].entities, total),
        }
        cut = cursor is not None and question.page_size is None and mode in _WHOLE
        return envelope.with_warnings(
            answer, [_truncated(opened, most, entities, relationships)] if cut else []
        )

    async def _names(
        self, mode: Mode, opened: Opened[Surroundings], relationships: Page[Relationship]
    ) -> dict[int, Entity]:
        if mode is Mode.IDS_ONLY:
            return {}
        vendor = opened.snapshot.about.vendor
        ends = {id for _, one in relationships.items for id in (one.source_id, one.target_id)} - {vendor.id}
        return (
            {**await self._graph.entities(sorted(ends)), vendor.id: vendor} if ends else {vendor.id: vendor}
        )


async def _paged(
    ids: Sequence[int], start: int, size: int, read: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]]
) -> Page[T]:
    """A page of what is shown; of what is not, none, and it begins where it did."""
    return await page_of(ids, start, size, read) if size else Page((), None, start)


def _view(
    mode: Mode,
    about: Surroundings,
    entities: Page[Entity],
    relationships: Page[Relationship],
    names: Mapping[int, Entity],
) -> dict[str, Any]:
    """Everything that any mode shows, as this mode shows it."""
    whole = mode is Mode.FULL
    shown = [of_entity(entity, whole=whole) for _, entity in entities.items]
    return {
        "vendor_id": about.vendor.id,
        "vendor_name": about.vendor.name,
        "vendor_type": about.vendor.type,
        "aliases": list(about.vendor.aliases),
        "attributes": about.vendor.attributes,
        "statistics": {
            "entity_count": len(about.entity_ids),
            "relationship_count": len(about.relationship_ids),
            "entity_type_distribution": about.entity_types,
            "relationship_type_distribution": about.relationship_types,
        },
        "entity_ids": [id for id, _ in entities.items],
        "relationship_ids": [id for id, _ in relationships.items],
        "top_entities": shown,
        "entities": shown,
        "relationships": [of_relationship(one, names, whole=whole) for _, one in relationships.items],
        "last_updated": envelope.iso(about.updated),
    }


def _truncated(
    opened: Opened[Surroundings], most: Most, entities: Page[Entity], relationships: Page[Relationship]
) -> Notice:
    all_entities, all_relationships = opened.snapshot.lists
    parts = [f"{len(entities.items)} of {len(all_entities)} entities"] if most.entities else []
    if most.relationships:
        parts.append(f"{len(relationships.items)} of {len(all_relationships)} relationships")
    return Notice(
        level="warning",
        code="TRUNCATED",
        message=f"This answer has {' and '.join(parts)}",
        suggestion="call again with the cursor for the rest, or use response_mode metadata for the numbers",
    )


def _price(question: Question, opened: Opened[Surroundings]) -> Price:
    left = [max(0, len(ids) - place) for ids, place in zip(opened.snapshot.lists, opened.places, strict=True)]

    def tokens(mode: Mode, page_size: int | None) -> int:
        most = msgspec.structs.replace(question, page_size=page_size).most(mode)
        return _tokens(mode, Most(min(left[0], most.entities), min(left[1], most.relationships)))

    modes = fitting_modes(Mode.AUTO, question.fields, VENDOR_FIELDS)
    most = question.page_size or MOST_PER_PAGE
    return Price({mode: tokens(mode, question.page_size) for mode in modes}, tokens, most)


def _tokens(mode: Mode, shown: Most) -> int:
    if mode is Mode.IDS_ONLY:
        return FRAME_TOKENS + ID_TOKENS * sum(shown)
    entity = WHOLE_ENTITY_TOKENS if mode is Mode.FULL else ENTITY_TOKENS
    # All but the ids begin with what metadata has too: the statistics.
    listed = entity * shown.entities + RELATIONSHIP_TOKENS * shown.relationships
    return TOKENS_PER_RESULT[Mode.METADATA] + listed


def _question(given: Mapping[str, Any]) -> Question:
    arguments = Arguments(NAME, given, _KNOWN)
    fields = arguments.fields()
    mode = arguments.word("response_mode", Mode.METADATA)
    return Question(
        name=arguments.name("vendor_name", LONGEST_NAME, what="the name of a vendor"),
        modes=modes_with(fields, mode, VENDOR_FIELDS),
        include_relationships=arguments.switch("include_relationships", default=True),
        page_size=arguments.whole("page_size", None, MOST_PER_PAGE),
        cursor=arguments.cursor(),
        fields=fields,
    )
