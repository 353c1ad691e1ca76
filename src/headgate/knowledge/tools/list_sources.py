"""list_sources: the documents that can be searched."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.domain.call import Caller
from headgate.knowledge import envelope
from headgate.knowledge.fields import check_fields, only
from headgate.knowledge.missing import NOTHING_INGESTED, missing
from headgate.knowledge.modes import Mode
from headgate.knowledge.paging import Pager, Snapshot, page_of
from headgate.knowledge.prices import Price, Till
from headgate.knowledge.query import Warning as Notice
from headgate.knowledge.store import Passages
from headgate.knowledge.tools.arguments import Arguments
from headgate.knowledge.tools.definitions import MOST_PER_PAGE, arguments_of
from headgate.knowledge.tools.views import FRAME_TOKENS, SOURCE_FIELDS, SOURCE_TOKENS, of_source
from headgate.knowledge.values import ANYTHING, Filters

NAME: Final = "list_sources"
_KNOWN: Final = arguments_of(NAME)


class ListSources:
    """Answers the tool."""

    def __init__(self, passages: Passages, till: Till, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._till = till
        self._clock = clock
        self.pager: Pager[None] = Pager(NAME, clock, passages.revision)

    async def answer(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """One page of documents by the names of their files; raises KnowledgeError."""
        began = self._clock()
        arguments = Arguments(NAME, given, _KNOWN)
        filters, size = arguments.filters(), arguments.whole("page_size", 10, MOST_PER_PAGE)
        fields = arguments.fields()
        check_fields(fields, SOURCE_FIELDS, NAME)
        bound: dict[str, object] = {"filter": filters}
        opened = await self.pager.open(arguments.cursor(), caller, bound, lambda: self._snapshot(filters))
        ids, place = opened.snapshot.lists[0], opened.places[0]
        results = max(0, min(size, len(ids) - place))
        price = Price({Mode.FULL: _tokens(Mode.FULL, results)}, _tokens, results)
        with self._till.reserve(caller, price) as reserved:
            page = await page_of(ids, place, size, self._passages.sources)
            cursor = None
            if page.following is not None:
                cursor = self.pager.cursor(opened.snapshot, caller, bound, [page.following])
            answer = {
                "sources": [only(of_source(source), fields or SOURCE_FIELDS) for _, source in page.items],
                "total_found": len(ids),
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
                "pagination": envelope.pagination(cursor, size, len(ids)),
            }
            warnings = () if ids else await self._why_none(filters)
            return await self._till.paid(reserved, envelope.with_warnings(answer, warnings))

    async def _snapshot(self, filters: Filters) -> Snapshot[None]:
        # Asked first: what changes while it is read is then known to have changed.
        revision = await self._passages.revision()
        return Snapshot((tuple(await self._passages.source_ids(filters)),), revision, None)

    async def _why_none(self, filters: Filters) -> tuple[Notice, ...]:
        there = await self._passages.source_ids(ANYTHING) if filters != ANYTHING else ()
        return await missing(self._passages, filters) if there else (NOTHING_INGESTED,)


def _tokens(_: Mode, sources: int) -> int:
    return FRAME_TOKENS + SOURCE_TOKENS * sources
