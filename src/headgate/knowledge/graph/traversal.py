"""Breadth-limited graph traversal from an entity, and the direct neighbourhood of a vendor."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

import msgspec

from headgate.knowledge.data_model import Edge, Entity
from headgate.knowledge.interfaces import GraphReader

T = TypeVar("T")

# The traversal continues from so many neighbours, most confident first: a hub has thousands.
MOST_EXPANDED: Final = 200
# Along so many relationships, and those of a few neighbours more: each of them may be a hub too.
MOST_EDGES: Final = 100_000
# The largest number of reached entities.
MOST_REACHED: Final = 2000
_BATCH: Final = 500
# A hub may be among them, and all edges of a batch are read at once.
_EXPANDED_AT_ONCE: Final = 20
# More edges than that are sorted in a thread, so that a hub does not block the event loop.
_FEW_EDGES: Final = 1000


class VendorNeighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor, and everything that is one step away from it."""

    vendor: Entity
    # Most confident first.
    entity_ids: tuple[int, ...]
    relationship_ids: tuple[int, ...]
    # How many there are of each type, the most frequent first.
    entity_types: dict[str, int]
    relationship_types: dict[str, int]
    # When any of it last changed, in seconds since 1970.
    updated: float


async def vendor_neighbourhood(graph: GraphReader, vendor: Entity) -> VendorNeighbourhood:
    around = await graph.neighbourhood(vendor.id)

    def build() -> VendorNeighbourhood:
        edges = sorted(around.edges, key=lambda edge: (-edge.confidence, edge.id))
        neighbours = sorted(
            around.neighbours, key=lambda one: (-one.confidence, -one.mentions, one.name.casefold(), one.id)
        )
        return VendorNeighbourhood(
            vendor=vendor,
            entity_ids=tuple(one.id for one in neighbours),
            relationship_ids=tuple(edge.id for edge in edges),
            entity_types=_counted(one.type for one in around.neighbours),
            relationship_types=_counted(edge.type for edge in around.edges),
            updated=max(vendor.updated, around.updated),
        )

    return await _run_off_loop(len(around.edges), build)


def _counted(types: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(types).items(), key=lambda item: (-item[1], item[0])))


async def _run_off_loop(edges: int, work: Callable[[], T]) -> T:
    """The result of work on the edges, in a thread if there are many."""
    return work() if edges <= _FEW_EDGES else await asyncio.to_thread(work)


class TraversalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The depth of a traversal, the relationships it follows, and the entities it returns."""

    hops: int = 1
    # In upper case; of any type when empty.
    entity_types: frozenset[str] = frozenset()
    relationship_types: frozenset[str] = frozenset()
    # For each relationship on a path.
    min_confidence: float = 0.7

    @property
    def chooses_types(self) -> bool:
        """Whether the result leaves out some of the entities it reaches."""
        return bool(self.entity_types or self.relationship_types)


class ReachedEntity(msgspec.Struct, frozen=True):
    """An entity that the walk came to by the fewest hops, and of those ways by the surest."""

    entity_id: int
    hop: int
    # The product of the confidences along the way.
    confidence: float
    # The entity in between; None when there is none.
    via: int | None = None


class TraversalResult(msgspec.Struct, frozen=True):
    """The entities of a traversal, nearest first, then most confident."""

    reached: dict[int, ReachedEntity]
    # The relationships that lead to each returned entity; each belongs to one entity only.
    leading: dict[int, tuple[int, ...]]
    # Whether there is more than was walked.
    cut: bool
    # How many relationships were not taken because they are not sure enough.
    unsure: int = 0


async def traverse(graph: GraphReader, start: int, terms: TraversalOptions) -> TraversalResult:
    """The entities within one or two hops, within the limit of breadth."""
    steps = _TraversalState(start, terms)
    edges = await graph.edges([start])
    near = await _run_off_loop(len(edges), partial(steps.add_first_hop, edges))
    expanded = len(near)
    if terms.hops > 1:
        expanded = 0
        while expanded < min(len(near), MOST_EXPANDED) and len(steps) < MOST_EDGES:
            batch = near[expanded : min(expanded + _EXPANDED_AT_ONCE, MOST_EXPANDED)]
            edges = await graph.edges([one.entity_id for one in batch])
            await _run_off_loop(len(edges), partial(steps.add_second_hop, edges))
            expanded += len(batch)
    ordered = await _run_off_loop(len(steps), steps.in_order)
    reached = ordered[:MOST_REACHED]
    cut = len(ordered) > len(reached) or len(near) > expanded
    kept = {one.entity_id: one for one in reached}
    if terms.entity_types:
        kept = await _of_types(graph, kept, terms.entity_types)
    leading = await _run_off_loop(len(steps), lambda: steps.leading(ordered, kept))
    return TraversalResult(kept, leading, cut, len(steps.unsure))


async def _of_types(
    graph: GraphReader, reached: dict[int, ReachedEntity], types: frozenset[str]
) -> dict[int, ReachedEntity]:
    ids, fitting = list(reached), set()
    for start in range(0, len(ids), _BATCH):
        entities = await graph.entities(ids[start : start + _BATCH])
        fitting |= {id for id, entity in entities.items() if entity.type.upper() in types}
    return {id: one for id, one in reached.items() if id in fitting}


class _TraversalState:
    def __init__(self, start: int, terms: TraversalOptions) -> None:
        self._start = start
        self._terms = terms
        self._best: dict[int, ReachedEntity] = {}
        self._edges: dict[int, Edge] = {}
        self.unsure: set[int] = set()

    def __len__(self) -> int:
        return len(self._edges) + len(self.unsure)

    def add_first_hop(self, edges: Iterable[Edge]) -> list[ReachedEntity]:
        """Follow the relationships that pass; returns the entities they lead to, in order."""
        for edge in self._passing(edges):
            self._edges[edge.id] = edge
            far = edge.target_id if edge.source_id == self._start else edge.source_id
            if far != self._start:
                self._offer(ReachedEntity(far, 1, edge.confidence))
        return self.in_order()

    def add_second_hop(self, edges: Iterable[Edge]) -> None:
        for edge in self._passing(edges):
            if edge.id in self._edges:
                continue
            self._edges[edge.id] = edge
            for near, far in ((edge.source_id, edge.target_id), (edge.target_id, edge.source_id)):
                middle = self._best.get(near)
                if middle is not None and middle.hop == 1 and far not in (near, self._start):
                    self._offer(ReachedEntity(far, 2, middle.confidence * edge.confidence, near))

    def _passing(self, edges: Iterable[Edge]) -> Iterator[Edge]:
        types = self._terms.relationship_types
        for edge in edges:
            if types and edge.type.upper() not in types:
                continue
            if edge.confidence >= self._terms.min_confidence:
                yield edge
            else:
                self.unsure.add(edge.id)

    def _offer(self, new: ReachedEntity) -> None:
        known = self._best.get(new.entity_id)
        if known is None or _distance_key(new) < _distance_key(known):
            self._best[new.entity_id] = new

    def in_order(self) -> list[ReachedEntity]:
        return sorted(self._best.values(), key=_distance_key)

    def leading(self, order: list[ReachedEntity], kept: Container[int]) -> dict[int, tuple[int, ...]]:
        """Each relationship under the later one of its ends, for the returned entities.

        The path to an entity in between that is not returned is under the first entity reached through it.
        """
        places = {one.entity_id: place for place, one in enumerate(order)}
        found: defaultdict[int, list[int]] = defaultdict(list)
        for id, edge in sorted(self._edges.items()):
            ends = [end for end in (edge.source_id, edge.target_id) if end in places]
            if ends:
                found[max(ends, key=places.__getitem__)].append(id)
        paths: dict[int, tuple[int, ...]] = {}
        for one in order:
            if one.entity_id in kept:
                before = found.pop(one.via, []) if one.via is not None and one.via not in kept else []
                first = (
                    id
                    for id in before
                    if self._start in (self._edges[id].source_id, self._edges[id].target_id)
                )
                paths[one.entity_id] = (*first, *found[one.entity_id])
        return paths


def _distance_key(one: ReachedEntity) -> tuple[int, float, int, int]:
    return (one.hop, -one.confidence, one.entity_id, one.via or 0)
