"""Everything between the fronts and the upstreams, built and taken down again."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from headgate.access.local import LocalAccess
from headgate.app.background import start
from headgate.app.delivery import Bookkeeping, delivery_tools_of, open_bookkeeping
from headgate.app.events import Events
from headgate.app.knowledge.builtin_server import INSTRUCTIONS, KnowledgeServer
from headgate.app.knowledge.builtin_server import NAME as KNOWLEDGE
from headgate.app.links import opener
from headgate.app.list_changed_hook import ListChangedHook
from headgate.app.recollection import Recollection
from headgate.app.refreshing import Refreshing
from headgate.app.results import Results, open_results_of, readers_of
from headgate.app.search import Search, open_search
from headgate.app.self_reference import chain_of, starts_servers_as_child
from headgate.app.surroundings import Surroundings
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.public_names import default_limit
from headgate.config.settings import Settings
from headgate.domain.call import Answer, Call, Request
from headgate.domain.federation import GatewayChain
from headgate.domain.kind import Kind
from headgate.domain.listing import PLAIN_CURATION
from headgate.domain.redaction import cleaned
from headgate.domain.server import ServerSpec
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.gateway.gateway import Gateway, GatewayTool
from headgate.input_requests.input_bridge import InputBridge
from headgate.input_requests.request_state import RequestStateSealer
from headgate.input_requests.task_registry import MemoryTaskRegistry
from headgate.server.change_notifier import ChangeNotifier
from headgate.server.method_router import MethodRouter
from headgate.server.sessions import HandshakeSession, HttpSession
from headgate.storage.files.sealer import Sealer, load_seal_key
from headgate.storage.files.state_file import StateFile
from headgate.storage.sqlite import catalog_store as catalog_file
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore
from headgate.upstream.example_server import open_example_server
from headgate.upstream.fleet import GatewayFederation, UpstreamFleet, run_fleet
from headgate.upstream.transports.builtin import BuiltinServer
from headgate.upstream.transports.child_process import raise_file_limit
from headgate.upstream.transports.process_watchdog import Watchdog
from headgate.web.metrics import CallMetrics

# How often is looked whether it is time to take them down again.
_FAVOURITES_SECONDS = 3600.0


class Core:
    """What a front needs, and what it tells."""

    def __init__(  # noqa: PLR0913 (everything that is opened for it)
        self,
        settings: Settings,
        state: StateFile,
        abilities: MergedCapabilities,
        recollection: Recollection,
        fleet: UpstreamFleet,
        change_notifier: ChangeNotifier,
        search: Search,
        results: Results,
        bookkeeping: Bookkeeping,
        knowledge: KnowledgeServer,
        call_metrics: CallMetrics,
        federation: GatewayFederation,
    ) -> None:
        self.state = state
        self.knowledge = knowledge
        self.results = results
        self.catalog = catalog = recollection.catalog
        self.fleet = fleet
        self.change_notifier = change_notifier
        self.search = search
        self._abilities = abilities
        self._recollection = recollection
        keys = [hashlib.sha256(secret.encode()).digest() for secret in settings.seal_keys]
        self.seal = Sealer(keys or [load_seal_key(settings.data_dir)])
        self.call_metrics = call_metrics
        self.refreshing = Refreshing(search.tool_listings, change_notifier, search.prepare)
        self.bookkeeping = bookkeeping
        self.input_bridge = InputBridge(bookkeeping.idempotent_delivery, RequestStateSealer(self.seal))
        self.surroundings = Surroundings(abilities, fleet, search.tool_listings, results, catalog)
        self.tasks: set[asyncio.Task[None]] = set()
        access = LocalAccess()
        own: dict[str, GatewayTool] = {
            **search.own_tools(access, self.surroundings.await_listings, self._found_tools)
        }

        async def use(request: Request) -> tuple[Call, Answer]:
            return await gateway.call_upstream_tool(request)

        transactions = bookkeeping.tools(use)
        own.update(transactions.tools_by_name)
        gateway = Gateway(
            access,
            catalog,
            search.tool_listings,
            bookkeeping.delivery,
            self.input_bridge,
            MemoryTaskRegistry(),
            results.responses(search.listed),
            transactions,
            bookkeeping.transfers,
            own,
        )
        self._federation = federation
        self.router = MethodRouter(gateway, settings.name, self.surroundings, lambda: federation.member)
        if settings.list_changed_exec is not None:
            change_notifier.add_listener(ListChangedHook(settings.list_changed_exec))

    def follow_changes(self) -> None:
        """From now on tell clients what changes; what was known before is nothing new."""
        self.catalog.on_change(self._changed)

    def apply(self, servers: tuple[ServerSpec, ...], left_out: Mapping[str, str]) -> None:
        """Run exactly these servers; those that are left out have a reason."""
        self.arrange(servers)
        self.catalog.set_unavailable_servers(_reasons(servers, left_out))
        self._recollection.apply(servers)
        self.bookkeeping.delivery_policy.apply(servers)
        # How its tools are shown and called is nothing that a server has to be connected anew for.
        self.fleet.apply(
            msgspec.structs.replace(server, curation=PLAIN_CURATION, policy=DEFAULT_UPSTREAM_POLICY)
            for server in servers
        )
        if self.fleet.starting():
            # None of them has listed yet: contested names go by the configuration, not by connection order.
            self.catalog.hold_names()
        start(self.surroundings.settle_names(), "names", self.tasks)

    def arrange(self, servers: tuple[ServerSpec, ...]) -> None:
        """These are the servers whose things are listed, in this order."""
        enabled = [server.name for server in servers if server.enabled]
        self._federation.retain_servers(enabled)
        self.catalog.set_servers(enabled, [server.name for server in servers if not server.enabled])
        self._abilities.set_servers(enabled)
        if self.catalog.curate({server.name: server.curation for server in servers}):
            self.search.tool_listings.clear_cache()
            self.refreshing.wake()

    def revived(self, session: HttpSession) -> None:
        """A client that shook hands is there again."""
        if session.preferences.subscriptions:
            self.surroundings.start(
                self.router.restore_subscriptions(session.preferences, session.streams.mark_resource_stale)
            )

    def left(self, session: HandshakeSession) -> None:
        """A client that shook hands is gone."""
        self.fleet.close_client(session.owner.id)
        self.search.tool_listings.forget_group(session.owner.id)
        if not session.revivable:
            # Otherwise they stay for their time: opening many sessions must not cost others their results.
            self.surroundings.start(self.results.forget(session.owner.id))
        if session.preferences.subscriptions:
            self.surroundings.start(self.router.drop_subscriptions(session.preferences))

    def _changed(self, kind: Kind) -> None:
        """What servers list is not what it was: tell those who see a difference."""
        self.change_notifier.list_changed(kind.capability, self.search.tool_listings.changed_groups(kind))
        if kind is Kind.TOOLS:
            self.refreshing.wake()

    async def take_favourites(self, usage: Callable[[], Awaitable[dict[tuple[str, str], int]]]) -> None:
        """Take down which tools are called most, from time to time."""
        favourites = self.search.favourites
        while True:
            if favourites.is_due and favourites.update(await usage()):
                self.search.tool_listings.clear_cache()
                self.refreshing.wake()
            await asyncio.sleep(_FAVOURITES_SECONDS)

    def _found_tools(self, visibility_group: str) -> None:
        """A search has changed the list of its clients: tell them before it is answered."""
        self.change_notifier.notify_now(Kind.TOOLS.capability, (visibility_group,))


def _reasons(servers: tuple[ServerSpec, ...], left_out: Mapping[str, str]) -> dict[str, str]:
    """Why each server of the configuration that does not run does not; some run as they were before."""
    enabled = {server.name for server in servers if server.enabled}
    disabled = {server.name: server.disabled_reason for server in servers}
    unused = {name: cleaned(reason) for name, reason in (disabled | dict(left_out)).items()}
    return {name: reason for name, reason in unused.items() if name not in enabled}


@asynccontextmanager
async def open_core(
    settings: Settings, *, chain: GatewayChain | None = None, forget: bool = True
) -> AsyncIterator[Core]:
    """Everything runs for as long as the block lasts; raises ConfigError.

    What no gateway has used for a while is dropped from the catalog file, unless somebody only looks.
    """
    if chain is None:
        chain = await asyncio.to_thread(chain_of, settings)
    federation = GatewayFederation(
        chain.own.instance, chain.own.config, is_child=starts_servers_as_child(settings)
    )
    state_path, catalog_path = settings.data_dir / "state.json", settings.data_dir / "proxy.db"
    if settings.reset_data:
        state_path.unlink(missing_ok=True)
        catalog_file.remove_catalog_files(catalog_path)
    state = StateFile(state_path)
    catalog = Catalog(
        name_limit=settings.tool_name_limit or default_limit(settings.name),
        prefixed=settings.prefix,
        page_bytes=settings.page_bytes,
        owners=state,
        readers=readers_of(settings) + delivery_tools_of(settings),
        truncates=settings.enable_auto_truncation,
    )
    abilities = MergedCapabilities(state)
    file = SqliteCatalogStore(catalog_path)
    recollection = Recollection(file, catalog)
    change_notifier = ChangeNotifier()
    events = Events(catalog, abilities, recollection, change_notifier, federation)
    child_files = raise_file_limit()
    watchdog = Watchdog()
    call_metrics = CallMetrics()
    offline = OfflineModel()
    knowledge = KnowledgeServer(settings, offline)
    builtin = {
        "example": BuiltinServer(open_example_server),
        KNOWLEDGE: BuiltinServer(knowledge.open, INSTRUCTIONS),
    }
    try:
        async with (
            open_search(settings, catalog, file, state, offline) as search,
            open_results_of(settings) as results,
            run_fleet(
                opener(settings, chain, watchdog, builtin, child_files),
                state,
                events,
                settings.first_listing_timeout_seconds,
            ) as fleet,
            open_bookkeeping(settings, fleet, catalog, call_metrics.count) as bookkeeping,
        ):
            core = Core(
                settings,
                state,
                abilities,
                recollection,
                fleet,
                change_notifier,
                search,
                results,
                bookkeeping,
                knowledge,
                call_metrics,
                federation,
            )
            events.delivery = bookkeeping.delivery
            catalog.hold_names()
            core.arrange(settings.servers)
            await recollection.recall(settings.servers, forget=forget)
            core.follow_changes()
            core.apply(settings.servers, settings.left_out)
            start(recollection.count(), "usage", core.tasks)
            start(core.take_favourites(file.usage), "favourites", core.tasks)
            bookkeeping.begin()
            core.refreshing.wake()
            try:
                yield core
            finally:
                for task in core.tasks:
                    task.cancel()
                core.input_bridge.close()
                await core.refreshing.close()
    finally:
        watchdog.close()
        await recollection.close()
        await state.flush()
