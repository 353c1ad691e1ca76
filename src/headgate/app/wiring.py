"""Builds everything between the server side and the upstreams in order, and closes it in reverse."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import msgspec

from headgate.access.local import LocalAccess
from headgate.app.catalog_persistence import CatalogPersistence
from headgate.app.delivery_services import (
    DeliveryServices,
    Transactions,
    listed_delivery_tools,
    open_delivery_services,
    open_transactions,
)
from headgate.app.knowledge import knowledge_options, knowledge_upstream
from headgate.app.listing_refresh import ListChangedHook, ListingRefresher
from headgate.app.loop_detection import chain_of, starts_servers_as_child
from headgate.app.server_facade import GatewayFacade
from headgate.app.stored_results import StoredResults, listed_result_tools, open_stored_results
from headgate.app.tool_search import SearchTools, ToolSearch, open_tool_search
from headgate.app.upstream_wiring import UpstreamEventDispatcher, transport_opener
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.public_names import default_limit
from headgate.config.settings import Settings
from headgate.domain.gateway_chain import GatewayChain
from headgate.domain.identity import Identity, Visibility
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import NO_CURATION
from headgate.domain.redaction import redact
from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.event_loop import BackgroundTasks
from headgate.gateway.calls import ToolCalls, UpstreamCalls
from headgate.gateway.gateway import Gateway
from headgate.gateway.interfaces import AccessControl
from headgate.gateway.resources import ResourceRequests
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
from headgate.upstream.fleet import GatewayFederation, UpstreamFleet
from headgate.upstream.transports.builtin import BuiltinServer
from headgate.upstream.transports.child_process import Watchdog, raise_file_limit
from headgate.web.metrics import CallMetrics

# Between two looks whether the most used tools have to be determined anew.
_FAVOURITES_INTERVAL_SECONDS = 3600.0


class AccessRules(AccessControl, Protocol):
    """Decides what identities see and do."""

    def visible(self, identity: Identity) -> Visibility:
        """The part of the catalog that the identity sees."""


@asynccontextmanager
async def open_gateway_runtime(
    settings: Settings,
    *,
    chain: GatewayChain | None = None,
    access: AccessRules | None = None,
    forget: bool = True,
) -> AsyncIterator["GatewayRuntime"]:
    """Everything runs for as long as the block lasts; raises ConfigError.

    Without `access` rules the local user may do everything.
    `forget` drops from the catalog file what no gateway has used for a while.
    """
    if chain is None:
        chain = await asyncio.to_thread(chain_of, settings)
    async with AsyncExitStack() as stack:
        # State and catalog.
        access = access or LocalAccess()
        state, file = _open_files(settings)
        stack.push_async_callback(state.flush)
        catalog = Catalog(
            name_limit=settings.tool_name_limit or default_limit(settings.name),
            prefixed=settings.prefix,
            page_bytes=settings.page_bytes,
            owners=state,
            visible=access.visible,
            readers=listed_result_tools(settings) + listed_delivery_tools(settings),
            truncates=settings.enable_auto_truncation,
        )
        capabilities = MergedCapabilities(state)
        catalog_persistence = CatalogPersistence(file, catalog)
        stack.push_async_callback(catalog_persistence.close)
        change_notifier = ChangeNotifier(access.visible)

        # Listings, search and stored results.
        offline = OfflineModel()
        search = await stack.enter_async_context(open_tool_search(settings, catalog, file, state, offline))
        results = await stack.enter_async_context(open_stored_results(settings, search.reads_results_by_name))

        # Servers.
        federation = GatewayFederation(
            chain.own.instance, chain.own.config, is_child=starts_servers_as_child(settings)
        )
        events = UpstreamEventDispatcher(
            catalog, capabilities, catalog_persistence, change_notifier, federation
        )
        knowledge = KnowledgeServer(knowledge_options(settings), offline)
        builtin = {"example": BuiltinServer(open_example_server), KNOWLEDGE: knowledge_upstream(knowledge)}
        watchdog = Watchdog()
        stack.callback(watchdog.close)
        fleet = await stack.enter_async_context(
            UpstreamFleet(
                transport_opener(settings, chain, watchdog, builtin, raise_file_limit()),
                state,
                events,
                settings.first_listing_timeout_seconds,
            )
        )

        # The path of a call, from the server back to the client.
        call_metrics = CallMetrics()
        delivery_services = await stack.enter_async_context(
            open_delivery_services(settings, fleet, call_metrics.count)
        )
        events.add_connected_listener(delivery_services.delivery.on_reconnected)
        sealer = _sealer_of(settings)
        input_bridge = InputBridge(delivery_services.idempotent_delivery, RequestStateSealer(sealer))
        task_registry = MemoryTaskRegistry()
        upstream_calls = UpstreamCalls(
            access, catalog, search.tool_listings, delivery_services.delivery, input_bridge, task_registry
        )
        transactions = await stack.enter_async_context(
            open_transactions(settings, delivery_services, catalog, upstream_calls.call_upstream_tool)
        )
        stack.callback(input_bridge.close)
        client_tasks = await stack.enter_async_context(BackgroundTasks())
        server_facade = GatewayFacade(
            capabilities, fleet, search.tool_listings, results, catalog, client_tasks
        )
        search_tools = SearchTools(
            settings,
            search,
            catalog,
            server_facade.await_listings,
            # Before the search is answered, so that the client can call what it found.
            lambda group: change_notifier.notify_now(ItemKind.TOOLS.capability, (group,)),
        )
        calls = ToolCalls(
            access,
            catalog,
            search.tool_listings,
            results.large_results,
            transactions.tools,
            delivery_services.transfers,
            upstream_calls,
            {**search_tools.tools_by_name, **transactions.tools.tools_by_name},
        )
        resources = ResourceRequests(
            access,
            catalog,
            delivery_services.delivery,
            input_bridge,
            task_registry,
            delivery_services.transfers,
            upstream_calls,
            calls,
        )
        gateway = Gateway(calls, resources, search.tool_listings)
        router = MethodRouter(gateway, settings.name, server_facade, lambda: federation.member)

        # Background work; it ends first.
        tasks = await stack.enter_async_context(BackgroundTasks())
        listing_refresher = ListingRefresher(
            search.tool_listings, change_notifier, search.index_searched_tools, tasks
        )
        if settings.list_changed_exec is not None:
            change_notifier.add_listener(ListChangedHook(settings.list_changed_exec, tasks))
        runtime = GatewayRuntime(
            state=state,
            sealer=sealer,
            catalog=catalog,
            capabilities=capabilities,
            catalog_persistence=catalog_persistence,
            change_notifier=change_notifier,
            listing_refresher=listing_refresher,
            search=search,
            search_tools=search_tools,
            results=results,
            federation=federation,
            fleet=fleet,
            knowledge=knowledge,
            call_metrics=call_metrics,
            delivery_services=delivery_services,
            transactions=transactions,
            server_facade=server_facade,
            router=router,
            tasks=tasks,
        )
        await _start(runtime, settings, file, forget=forget)
        yield runtime


async def _start(
    runtime: "GatewayRuntime", settings: Settings, file: SqliteCatalogStore, *, forget: bool
) -> None:
    """Restore the listings of the last run, then connect to the servers."""
    runtime.catalog.hold_names()
    runtime.order_servers(settings.servers)
    await runtime.catalog_persistence.restore(settings.servers, forget=forget)
    # Not before: the listings of the last run are no change.
    for kind in ItemKind:
        runtime.catalog.take_change(kind)
    runtime.catalog.on_change(runtime.on_catalog_changed)
    runtime.apply_servers(settings.servers, settings.left_out)
    runtime.tasks.start(runtime.catalog_persistence.record_usage_periodically(), name="usage")
    runtime.tasks.start(runtime.update_favourites_periodically(file.usage), name="favourites")
    # After the servers are known, because it sends recorded calls again.
    runtime.tasks.start(runtime.transactions.maintain_ledger(), name="ledger")
    runtime.listing_refresher.schedule()


def _open_files(settings: Settings) -> tuple[StateFile, SqliteCatalogStore]:
    state_path, catalog_path = settings.data_dir / "state.json", settings.data_dir / "proxy.db"
    if settings.reset_data:
        state_path.unlink(missing_ok=True)
        catalog_file.remove_catalog_files(catalog_path)
    return StateFile(state_path), SqliteCatalogStore(catalog_path)


def _sealer_of(settings: Settings) -> Sealer:
    keys = [hashlib.sha256(secret.encode()).digest() for secret in settings.seal_keys]
    return Sealer(keys or [load_seal_key(settings.data_dir)])


class GatewayRuntime(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The running parts, and the events that concern several of them."""

    state: StateFile
    sealer: Sealer
    catalog: Catalog
    capabilities: MergedCapabilities
    catalog_persistence: CatalogPersistence
    change_notifier: ChangeNotifier
    listing_refresher: ListingRefresher
    search: ToolSearch
    search_tools: SearchTools
    results: StoredResults
    federation: GatewayFederation
    fleet: UpstreamFleet
    knowledge: KnowledgeServer
    call_metrics: CallMetrics
    delivery_services: DeliveryServices
    transactions: Transactions
    server_facade: GatewayFacade
    router: MethodRouter
    tasks: BackgroundTasks

    def apply_servers(self, servers: tuple[ServerSpec, ...], left_out: Mapping[str, str]) -> None:
        """Run exactly these servers; `left_out` has the reason of each that is not usable."""
        self.order_servers(servers)
        # One with a rejected edit runs as before.
        enabled = {server.name for server in servers if server.enabled}
        reasons = {server.name: server.disabled_reason for server in servers} | dict(left_out)
        self.catalog.set_unavailable_servers(
            {name: redact(reason) for name, reason in reasons.items() if name not in enabled}
        )
        self.catalog_persistence.set_servers(servers)
        self.delivery_services.delivery_policy.apply(servers)
        # A change of curation or delivery policy does not reconnect the server.
        self.fleet.apply(
            msgspec.structs.replace(server, curation=NO_CURATION, policy=DEFAULT_UPSTREAM_POLICY)
            for server in servers
        )
        if self.fleet.starting():
            # Contested names follow the order of the configuration, not the order of connections.
            self.catalog.hold_names()
        self.tasks.start(self.server_facade.wait_until_names_settled(), name="names")

    def order_servers(self, servers: tuple[ServerSpec, ...]) -> None:
        """List what these servers offer, in this order."""
        enabled = [server.name for server in servers if server.enabled]
        self.federation.retain_servers(enabled)
        self.catalog.set_servers(enabled, [server.name for server in servers if not server.enabled])
        self.capabilities.set_servers(enabled)
        if self.catalog.curate({server.name: server.curation for server in servers}):
            self.search.tool_listings.clear_cache()
            self.listing_refresher.schedule()

    def on_session_revived(self, session: HttpSession) -> None:
        """Restore the subscriptions of a session from before a restart."""
        if session.preferences.subscriptions:
            self.server_facade.start_background_task(
                self.router.restore_subscriptions(
                    session.preferences, session.identity, session.streams.mark_resource_stale
                )
            )

    def on_session_closed(self, session: HandshakeSession) -> None:
        """Release what belongs to the session alone."""
        self.fleet.close_client(session.owner.id)
        self.search.tool_listings.forget_group(session.visibility_group)
        if not session.revivable:
            # Others stay for their time: opening many sessions must not cost other clients their results.
            self.server_facade.start_background_task(self.results.clear_agent(session.owner.id))
        if session.preferences.subscriptions:
            self.server_facade.start_background_task(
                self.router.drop_subscriptions(session.preferences, session.identity)
            )

    def on_catalog_changed(self, kind: ItemKind) -> None:
        groups = self.search.tool_listings.changed_groups(kind)
        change = self.catalog.take_change(kind)
        self.change_notifier.list_changed(kind.capability, groups, change.is_seen_by)
        if kind is ItemKind.TOOLS:
            self.listing_refresher.schedule()

    async def update_favourites_periodically(
        self, usage: Callable[[], Awaitable[dict[tuple[str, str], int]]]
    ) -> None:
        """Determine the most used tools from time to time; never returns."""
        favourites = self.search.favourites
        while True:
            if favourites.is_due and favourites.update(await usage()):
                self.search.tool_listings.clear_cache()
                self.listing_refresher.schedule()
            await asyncio.sleep(_FAVOURITES_INTERVAL_SECONDS)
