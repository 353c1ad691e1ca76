"""Whatever changes: a client whose list differs was notified, and no other client was."""

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.listing_variant import KnownClients, ListingContext
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import SERVER_MODES, Curation, ListingMode
from tests.catalog.sample_catalog import SAMPLING, target
from tests.catalog.sample_listings import OWN_TOOLS, ListingFixture, session, wordy
from tests.delivery.scripted_upstream import Clock

SERVERS = ("a", "b", "c")
NAMES = [f"do{number}" for number in range(6)]
VIEWERS = [
    *(session(f"{mode}", mode=mode) for mode in ListingMode),
    session("strict", client="strict", mode=ListingMode.SLIM),
    session("cursor", client="cursor", mode=ListingMode.AUTO),
    session("sampling", SAMPLING, mode=ListingMode.BUDGET),
    session("sampling full", SAMPLING, mode=ListingMode.FULL),
]


def rough(text: bytes) -> int:
    """As good as tokens where only sizes matter."""
    return len(text) // 4 + 1


class NotificationModel:
    """What each client has seen, and who was notified since."""

    def __init__(self) -> None:
        self.pools = ToolPools(15, Clock())
        self.stage = ListingFixture(
            ListingMode.AUTO,
            {server: [] for server in SERVERS},
            pools=self.pools,
            clients=KnownClients(dialects={"strict": Dialect.OPENAI}),
            budget_tokens=700,
            count=rough,
        )
        self.seen: dict[str, list[bytes]] = {}
        self.told: set[str] = set()
        self.stage.catalog.on_change(self._changed)

    def _changed(self, kind: ItemKind) -> None:
        affected = self.stage.tool_listings.changed_groups(kind)
        self.told |= {
            visibility_group
            for visibility_group in self.seen
            if affected is None or visibility_group in affected
        }

    async def listed(self, listing_context: ListingContext) -> None:
        self.seen[listing_context.visibility_group] = await self.stage.pages(listing_context)
        self.told.discard(listing_context.visibility_group)

    async def check(self) -> None:
        """Views are made anew, and everybody's list is looked at without being noted as seen."""
        self.told |= set(await self.stage.tool_listings.refresh())
        fresh = ListingFixture(
            ListingMode.AUTO,
            {},
            catalog=self.stage.catalog,
            pools=self.pools,
            clients=KnownClients(dialects={"strict": Dialect.OPENAI}),
            budget_tokens=700,
            count=rough,
        )
        for listing_context in VIEWERS:
            if listing_context.visibility_group in self.seen:
                now = await fresh.pages(listing_context)
                differs = now != self.seen[listing_context.visibility_group]
                assert not differs or listing_context.visibility_group in self.told
                await self._reachable(now)

    async def _reachable(self, pages: list[bytes]) -> None:
        for item in self.stage.catalog.every_tool:
            assert target(self.stage.catalog, item.public_name) == (item.server, item.name)
            assert item.public_name not in OWN_TOOLS


Step = Callable[[NotificationModel], None]
subsets = st.lists(st.sampled_from(NAMES), unique=True, max_size=6)


def offers(server: str, names: list[str], words: int, profile: ClientProfile) -> Step:
    def step(watch: NotificationModel) -> None:
        watch.stage.catalog.replace_listing(
            server, ItemKind.TOOLS, [wordy(name, words) for name in names], profile
        )

    return step


def curates(
    server: str, mode: ListingMode | None, pinned: list[str], hidden: list[str], renamed: dict[str, str]
) -> Step:
    curation = Curation(mode, tuple(pinned), tuple(hidden), renamed)

    def step(watch: NotificationModel) -> None:
        if watch.stage.catalog.curate({server: curation}):
            watch.stage.tool_listings.clear_cache()

    return step


def orders(servers: list[str]) -> Step:
    def step(watch: NotificationModel) -> None:
        watch.stage.catalog.set_servers(servers)
        watch.stage.tool_listings.clear_cache()

    return step


def finds(visibility_group: str, server: str, name: str) -> Step:
    def step(watch: NotificationModel) -> None:
        if watch.stage.catalog.has((server, name)):
            watch.pools.register(visibility_group, {(server, name): 0.5})
            # As retrieve_tools does.
            watch.told.add(visibility_group)

    return step


steps = st.one_of(
    st.builds(
        offers,
        st.sampled_from(SERVERS),
        subsets,
        st.sampled_from([0, 40, 400]),
        st.sampled_from([PLAIN_PROFILE, SAMPLING]),
    ),
    st.builds(
        curates,
        st.sampled_from(SERVERS),
        st.none() | st.sampled_from(SERVER_MODES),
        subsets,
        st.lists(st.sampled_from(NAMES), max_size=2),
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["run", "a_do1", "call_tool"]), max_size=2),
    ),
    st.builds(orders, st.lists(st.sampled_from(SERVERS), unique=True, min_size=1)),
    st.builds(finds, st.just("dynamic"), st.sampled_from(SERVERS), st.sampled_from(NAMES)),
)


@given(st.lists(st.tuples(steps, st.sets(st.integers(0, len(VIEWERS) - 1), max_size=4)), max_size=8))
@settings(max_examples=60)
def test_whoever_sees_another_list_has_been_told(changes: list[tuple[Step, set[int]]]) -> None:
    async def live() -> None:
        watch = NotificationModel()
        for listing_context in VIEWERS:
            await watch.listed(listing_context)
        for change, listing in changes:
            change(watch)
            await watch.check()
            for index in listing:
                await watch.listed(VIEWERS[index])

    asyncio.run(live())


@given(st.lists(steps, max_size=6))
@settings(max_examples=40)
def test_nobody_is_told_whose_list_is_what_it_was(changes: list[Step]) -> None:
    async def live() -> None:
        watch = NotificationModel()
        viewers = [one for one in VIEWERS if one.mode not in (ListingMode.FULL, ListingMode.DYNAMIC)]
        for change in changes:
            for listing_context in viewers:
                await watch.listed(listing_context)
            change(watch)
            told = set(await watch.stage.tool_listings.refresh())
            differ = {
                one.visibility_group
                for one in viewers
                if await watch.stage.pages(one) != watch.seen[one.visibility_group]
            }
            assert told <= differ

    asyncio.run(live())
