"""Builds everything between the server side and the upstreams, and closes it in reverse order."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from headgate.access.local import LocalAccess
from headgate.app.catalog_persistence import CatalogPersistence
from headgate.app.delivery_services import DeliveryServices, listed_delivery_tools, open_delivery_services
from headgate.app.knowledge import knowledge_options, knowledge_upstream
from headgate.app.list_changed_hook import ListChangedHook
from headgate.app.loop_detection import chain_of, starts_servers_as_child
from headgate.app.server_facade import GatewayFacade, ListingRefresher
from headgate.app.stored_results import StoredResults, listed_result_tools, open_stored_results
from headgate.app.tool_search import ToolSearch, open_tool_search
from headgate.app.upstream_wiring import UpstreamEventDispatcher, transport_opener
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.public_names import default_limit
from headgate.config.settings import Settings
from headgate.domain.gateway_chain import GatewayChain
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import NO_CURATION
from headgate.domain.redaction import redact
from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.event_loop import BackgroundTasks
from headgate.gateway.collaborators import GatewayTool
from headgate.gateway.gateway import Gateway
from headgate.gateway.upstream_calls import UpstreamCalls
from headgate.input_requests.input_bridge import InputBridge
from headgate.input_requests.request_state import RequestStateSealer
from headgate.input_requests.task_registry import MemoryTaskRegistry
from headgate.knowledge.server import NAME as KNOWLEDGE
from headgate.knowledge.server import KnowledgeServer
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
_FAVOURITES_INTERVAL_SECONDS = 3600.0


class GatewayRuntime:
    """What a front needs, and what it tells."""

    def __init__(  # noqa: PLR0913 (everything that is opened for it)
        self,
        settings: Settings,
        state: StateFile,
        abilities: MergedCapabilities,
        catalog_persistence: CatalogPersistence,
        fleet: UpstreamFleet,
        change_notifier: ChangeNotifier,
        search: ToolSearch,
        results: StoredResults,
        delivery_services: DeliveryServices,
        knowledge: KnowledgeServer,
        call_metrics: CallMetrics,
        federation: GatewayFederation,
    ) -> None:
        self.state = state
        self.knowledge = knowledge
        self.results = results
        self.catalog = catalog = catalog_persistence.catalog
        self.fleet = fleet
        self.change_notifier = change_notifier
        self.search = search
        self._abilities = abilities
        self._catalog_persistence = catalog_persistence
        keys = [hashlib.sha256(secret.encode()).digest() for secret in settings.seal_keys]
        self.sealer = Sealer(keys or [load_seal_key(settings.data_dir)])
        self.call_metrics = call_metrics
        self.listing_refresher = ListingRefresher(
            search.tool_listings, change_notifier, search.index_searched_tools
        )
        self.delivery_services = delivery_services
        self.input_bridge = InputBridge(
            delivery_services.idempotent_delivery, RequestStateSealer(self.sealer)
        )
        self.server_facade = GatewayFacade(abilities, fleet, search.tool_listings, results, catalog)
        self.tasks = BackgroundTasks()
        access = LocalAccess()
        own: dict[str, GatewayTool] = {
            **search.own_tools(access, self.server_facade.await_listings, self._on_tools_found)
        }
        task_registry = MemoryTaskRegistry()
        upstream_calls = UpstreamCalls(
            access,
            catalog,
            search.tool_listings,
            delivery_services.delivery,
            self.input_bridge,
            task_registry,
        )
        transactions = delivery_services.tools(upstream_calls.call_upstream_tool)
        own.update(transactions.tools_by_name)
        gateway = Gateway(
            access,
            catalog,
            search.tool_listings,
            delivery_services.delivery,
            self.input_bridge,
            task_registry,
            results.large_results(search.reads_results_by_name),
            transactions,
            delivery_services.transfers,
            upstream_calls,
            own,
        )
        self._federation = federation
        self.router = MethodRouter(gateway, settings.name, self.server_facade, lambda: federation.member)
        if settings.list_changed_exec is not None:
            change_notifier.add_listener(ListChangedHook(settings.list_changed_exec))

    def notify_catalog_changes(self) -> None:
        """From now on tell clients what changes; what was known before is nothing new."""
        self.catalog.on_change(self._on_catalog_changed)

    def apply_servers(self, servers: tuple[ServerSpec, ...], left_out: Mapping[str, str]) -> None:
        """Run exactly these servers; those that are left out have a reason."""
        self.order_servers(servers)
        self.catalog.set_unavailable_servers(_reasons_not_running(servers, left_out))
        self._catalog_persistence.set_servers(servers)
        self.delivery_services.delivery_policy.apply(servers)
        # How its tools are shown and called is nothing that a server has to be connected anew for.
        self.fleet.apply(
            msgspec.structs.replace(server, curation=NO_CURATION, policy=DEFAULT_UPSTREAM_POLICY)
            for server in servers
        )
        if self.fleet.starting():
            # None of them has listed yet: contested names go by the configuration, not by connection order.
            self.catalog.hold_names()
        self.tasks.start(self.server_facade.wait_until_names_settled(), name="names")

    def order_servers(self, servers: tuple[ServerSpec, ...]) -> None:
        """These are the servers whose things are listed, in this order."""
        enabled = [server.name for server in servers if server.enabled]
        self._federation.retain_servers(enabled)
        self.catalog.set_servers(enabled, [server.name for server in servers if not server.enabled])
        self._abilities.set_servers(enabled)
        if self.catalog.curate({server.name: server.curation for server in servers}):
            self.search.tool_listings.clear_cache()
            self.listing_refresher.schedule()

    def on_session_revived(self, session: HttpSession) -> None:
        """A client that shook hands is there again."""
        if session.preferences.subscriptions:
            self.server_facade.start_background_task(
                self.router.restore_subscriptions(session.preferences, session.streams.mark_resource_stale)
            )

    def on_session_closed(self, session: HandshakeSession) -> None:
        """A client that shook hands is gone."""
        self.fleet.close_client(session.owner.id)
        self.search.tool_listings.forget_group(session.owner.id)
        if not session.revivable:
            # Otherwise they stay for their time: opening many sessions must not cost others their results.
            self.server_facade.start_background_task(self.results.clear_agent(session.owner.id))
        if session.preferences.subscriptions:
            self.server_facade.start_background_task(self.router.drop_subscriptions(session.preferences))

    def _on_catalog_changed(self, kind: ItemKind) -> None:
        """What servers list is not what it was: tell those who see a difference."""
        self.change_notifier.list_changed(kind.capability, self.search.tool_listings.changed_groups(kind))
        if kind is ItemKind.TOOLS:
            self.listing_refresher.schedule()

    async def update_favourites_periodically(
        self, usage: Callable[[], Awaitable[dict[tuple[str, str], int]]]
    ) -> None:
        """Take down which tools are called most, from time to time."""
        favourites = self.search.favourites
        while True:
            if favourites.is_due and favourites.update(await usage()):
                self.search.tool_listings.clear_cache()
                self.listing_refresher.schedule()
            await asyncio.sleep(_FAVOURITES_INTERVAL_SECONDS)

    def _on_tools_found(self, visibility_group: str) -> None:
        """A search has changed the list of its clients: tell them before it is answered."""
        self.change_notifier.notify_now(ItemKind.TOOLS.capability, (visibility_group,))


def _reasons_not_running(servers: tuple[ServerSpec, ...], left_out: Mapping[str, str]) -> dict[str, str]:
    """Why each server of the configuration that does not run does not; some run as they were before."""
    enabled = {server.name for server in servers if server.enabled}
    disabled = {server.name: server.disabled_reason for server in servers}
    unused = {name: redact(reason) for name, reason in (disabled | dict(left_out)).items()}
    return {name: reason for name, reason in unused.items() if name not in enabled}


@asynccontextmanager
async def open_gateway_runtime(
    settings: Settings, *, chain: GatewayChain | None = None, forget: bool = True
) -> AsyncIterator[GatewayRuntime]:
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
        readers=listed_result_tools(settings) + listed_delivery_tools(settings),
        truncates=settings.enable_auto_truncation,
    )
    abilities = MergedCapabilities(state)
    file = SqliteCatalogStore(catalog_path)
    catalog_persistence = CatalogPersistence(file, catalog)
    change_notifier = ChangeNotifier()
    events = UpstreamEventDispatcher(catalog, abilities, catalog_persistence, change_notifier, federation)
    child_files = raise_file_limit()
    watchdog = Watchdog()
    call_metrics = CallMetrics()
    offline = OfflineModel()
    knowledge = KnowledgeServer(knowledge_options(settings), offline)
    builtin = {
        "example": BuiltinServer(open_example_server),
        KNOWLEDGE: knowledge_upstream(knowledge),
    }
    try:
        async with (
            open_tool_search(settings, catalog, file, state, offline) as search,
            open_stored_results(settings) as results,
            run_fleet(
                transport_opener(settings, chain, watchdog, builtin, child_files),
                state,
                events,
                settings.first_listing_timeout_seconds,
            ) as fleet,
            open_delivery_services(settings, fleet, catalog, call_metrics.count) as delivery_services,
        ):
            runtime = GatewayRuntime(
                settings,
                state,
                abilities,
                catalog_persistence,
                fleet,
                change_notifier,
                search,
                results,
                delivery_services,
                knowledge,
                call_metrics,
                federation,
            )
            events.delivery = delivery_services.delivery
            catalog.hold_names()
            runtime.order_servers(settings.servers)
            await catalog_persistence.restore(settings.servers, forget=forget)
            runtime.notify_catalog_changes()
            runtime.apply_servers(settings.servers, settings.left_out)
            runtime.tasks.start(catalog_persistence.record_usage_periodically(), name="usage")
            runtime.tasks.start(runtime.update_favourites_periodically(file.usage), name="favourites")
            delivery_services.start_maintenance()
            runtime.listing_refresher.schedule()
            try:
                yield runtime
            finally:
                runtime.tasks.cancel()
                runtime.input_bridge.close()
                await runtime.listing_refresher.close()
    finally:
        watchdog.close()
        await catalog_persistence.close()
        await state.flush()
