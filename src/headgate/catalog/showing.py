"""What each client sees of the tools, in the mode that is meant for it, and whose list has changed."""

import asyncio
from collections.abc import Collection, Container, Sequence
from typing import Final, Protocol

import msgspec

from headgate.catalog.advice import NOTHING_MISSING, Missing, advice
from headgate.catalog.budget import Named
from headgate.catalog.changes import Changes
from headgate.catalog.clients import Clients
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.dialects.restoring import restored
from headgate.catalog.gallery import Gallery
from headgate.catalog.hints import NO_HINT, CacheHint
from headgate.catalog.listing import Listing, Print
from headgate.catalog.names import CALL_TOOL, LISTED_LAST, OWN_NAMES, READERS, RETRIEVE_TOOLS, Key
from headgate.catalog.pool import Pools
from headgate.catalog.report import Shown, report
from headgate.catalog.scene import Scene, Sight
from headgate.catalog.seen import AllBut, Seen
from headgate.catalog.viewer import Viewer, viewer_of
from headgate.catalog.views import Views
from headgate.domain.call import Caller, Request, circle_of
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era

# Instead of the digest of what servers defined, of which everybody is told as soon as it changes.
_PLAIN: Final = "as defined"


class Everything(Protocol):
    """The whole catalog."""

    def listing(self, kind: Kind, viewer: Viewer) -> Listing:
        """Everything of a kind as servers defined it; the same object until something changes."""

    def visible(self, profile: Profile) -> list[Item]:
        """The tools that clients of that profile see; an equal list until something changes."""

    def differs(self, profile: Profile) -> bool:
        """Whether they see other tools than clients without capabilities."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""

    def see(self, kind: Kind, profile: Profile) -> None:
        """Clients of that profile see some of it, and want to know when it changes."""

    def has(self, key: Key) -> bool:
        """Whether the server has such a tool, for anybody."""

    def tool(self, key: Key, profile: Profile) -> Item | None:
        """One tool as clients of that profile see it, if they do."""

    def find(self, name: str, caller: Caller, profile: Profile) -> Item | None:
        """The tool of that name, in any spelling, if clients of that profile see it."""

    def caching(self, kind: Kind, profile: Profile) -> CacheHint:
        """How long a listing of everything may be kept, and by whom."""


class Showing:
    """Listings in every mode; whatever it is, prompts and resources are listed in full."""

    def __init__(
        self,
        mode: Mode,
        everything: Everything,
        pools: Pools,
        views: Views,
        clients: Clients,
        changes: Changes,
        *,
        page_bytes: int,
        reserved: bool = True,
    ) -> None:
        """Where names are not `reserved`, what a server has comes before the gateway's own tools in full."""
        self.default = mode
        self.changes = changes
        self.budget_tokens = views.budget_tokens
        self._everything = everything
        self._pools = pools
        self._views = views
        self._clients = clients
        self._page_bytes = page_bytes
        self._reserved = reserved
        self._gallery = Gallery(everything, views)
        self._seen = Seen()

    # Which mode, in which dialect.

    def wanted(self, viewer: Viewer) -> Mode:
        """The mode that is meant for the viewer: by its path, its key, its name, or the gateway's own."""
        return viewer.mode or viewer.caller.listing or self._clients.mode(viewer.client) or self.default

    def _scene(self, viewer: Viewer) -> Scene:
        mode = self.wanted(viewer)
        if mode is Mode.AUTO and self._clients.searches_itself(viewer.client):
            mode = Mode.FULL
        fitted = mode in (Mode.AUTO, Mode.BUDGET)
        most = self._clients.most_tools(viewer.client) if fitted else None
        return Scene(viewer.profile, Sight(mode, self._clients.dialect(viewer.client), viewer.era, most))

    def _is_plain(self, scene: Scene) -> bool:
        """Whether every tool is shown as its server defined it, so that nothing has to be made."""
        sight = scene.sight
        return sight.mode is Mode.FULL and sight.dialect is Dialect.PLAIN and not self._curated(scene)

    def _curated(self, scene: Scene) -> bool:
        return self._views.curated(self._everything.visible(scene.profile))

    # What that means for calls.

    def shows_full_schemas(self, request: Request) -> bool:
        """Whether the client sees the whole definition of every tool, as far as is known."""
        scene = self._scene(viewer_of(request))
        view = self._gallery.made(scene)
        if view is not None:
            return view.whole
        # Who has not listed yet may have done so before the gateway was started.
        return scene.sight.mode in (Mode.FULL, Mode.AUTO) and not self._curated(scene)

    def shows_verbatim(self, request: Request) -> bool:
        """Whether the client sees every definition as its server wrote it, also what headers it asks for."""
        return self._clients.dialect(request.client) is Dialect.PLAIN and self.shows_full_schemas(request)

    def serves_gateway_tools(self, request: Request) -> bool:
        """Whether the client is served the gateway's own tools, so that their names mean them."""
        if self._reserved or not self.shows_full_schemas(request):
            return True
        if request.name in LISTED_LAST:
            return self._everything.find(request.name, request.caller, request.profile) is None
        # What it was shown before the gateway was started is not known: they may have been on its list.
        scene = self._scene(viewer_of(request))
        unknown = scene.sight.mode is Mode.AUTO and self._gallery.made(scene) is None
        return unknown and self._everything.find(request.name, request.caller, request.profile) is None

    def lists_search_tool(self, request: Request) -> bool:
        """Whether what finds tools is on the client's list."""
        scene = self._scene(viewer_of(request))
        view = self._gallery.made(scene)
        return not scene.viewed or (view is not None and RETRIEVE_TOOLS in view.own)

    def calls(self, request: Request) -> bool:
        """Whether what calls any tool by its name is on the client's list."""
        scene = self._scene(viewer_of(request))
        view = self._gallery.made(scene)
        return scene.sight.mode is Mode.SEARCH or (view is not None and CALL_TOOL in view.own)

    def reads(self, request: Request) -> bool:
        """Whether what reads large results is on the client's list, as far as is known."""
        scene = self._scene(viewer_of(request))
        readers = [own.name for own in self._views.readers if own.name in READERS]
        if scene.sight.mode is Mode.SEARCH or not readers:
            return False
        if self._is_plain(scene):
            return any(self.serves_gateway_tools(_named(name, request)) for name in readers)
        view = self._gallery.made(scene)
        # Who has not listed yet may have done so before the gateway was started.
        return view is None or view.reads

    def grows(self, request: Request) -> bool:
        """Whether what the client finds is added to its list."""
        return self.wanted(viewer_of(request)) is Mode.DYNAMIC

    def record_call(self, request: Request, tool: Item) -> None:
        """The client calls the tool; in dynamic mode that keeps it on the list for longer."""
        # Outside dynamic mode there are no pools, and this is asked of every call.
        if self._pools.by_circle:
            self._pools.refresh(circle_of(request.owner, request.caller), (tool.server, tool.name))

    def restore_arguments(self, request: Request, tool: Item) -> Request:
        """The request with the arguments that the tool's own schema wants, where the client saw another."""
        dialect = self._clients.dialect(request.client)
        if dialect is Dialect.PLAIN or "arguments" not in request.params:
            return request
        given = bytes(request.params["arguments"])
        arguments = restored(given, tool.definition, dialect)
        if arguments == given:
            return request
        params = {**request.params, "arguments": msgspec.Raw(arguments)}
        return msgspec.structs.replace(request, params=params)

    # What is seen.

    async def list_page(self, kind: Kind, cursor: str | None, viewer: Viewer) -> bytes:
        """One page of a listing; raises InvalidCursor."""
        if kind is not Kind.TOOLS:
            return self._everything.listing(kind, viewer).page(cursor)
        self._everything.see(Kind.TOOLS, viewer.profile)
        scene = self._scene(viewer)
        listing = await self._listing(scene, viewer)
        if cursor is None:
            if not listing.printed:
                # In another thread: of thousands of tools it takes longer than others should wait.
                await asyncio.to_thread(lambda: listing.print)
            self._note(scene, viewer, listing.print)
        return listing.page(cursor)

    async def _listing(self, scene: Scene, viewer: Viewer) -> Listing:
        if not scene.viewed:
            return Listing(Kind.TOOLS.member, self._few(viewer.visibility_group, scene), self._page_bytes)
        if self._is_plain(scene):
            return self._everything.listing(Kind.TOOLS, viewer)
        return (await self._gallery.view(scene)).listing

    def _few(self, visibility_group: str, scene: Scene) -> list[Named]:
        """The gateway's own tools, and what the circle has found."""
        sight = scene.sight
        own = self._views.search_tools(sight)
        found: list[Item] = []
        if sight.mode is Mode.DYNAMIC:
            tools = (self._everything.tool(key, scene.profile) for key in self._pools.keys(visibility_group))
            found = [tool for tool in tools if tool is not None]
        stateless = sight.era is Era.STATELESS
        forms = (
            (item.public_name, item.definition if stateless else item.handshake_definition) for item in found
        )
        # A name of an own tool means that one, also where such names are not reserved.
        shown = [
            (name, self._views.adapted(form, sight.dialect)) for name, form in forms if name not in OWN_NAMES
        ]
        return [*own, *shown]

    def _note(self, scene: Scene, viewer: Viewer, shown: Print) -> None:
        if scene.sight.mode is not Mode.DYNAMIC:
            # That one is meant to change.
            same = self._gallery.shared(scene)
            self.changes.note(same.label, shown, same.variant)
        if not scene.viewed:
            mark = _mark(self._few(viewer.visibility_group, scene))
        else:
            mark = _PLAIN if self._is_plain(scene) else shown.digest
        self._seen.note(viewer.visibility_group, scene, mark, shared=viewer.owner is None and scene.viewed)

    # What is said of it.

    async def advice(self, viewer: Viewer, missing: Missing = NOTHING_MISSING) -> str:
        """What a model must know to reach every tool."""
        scene = self._scene(viewer)
        if not scene.viewed or self._is_plain(scene):
            return advice(scene.sight.mode, scene.sight.mode, missing=missing)
        view = await self._gallery.view(scene)
        return advice(scene.sight.mode, view.mode, view, missing)

    def caching(self, kind: Kind, viewer: Viewer) -> CacheHint:
        """How long a listing may be kept, and by whom."""
        hint = self._everything.caching(kind, viewer.profile)
        if kind is not Kind.TOOLS:
            return hint
        sight = self._scene(viewer).sight
        if sight.mode is Mode.DYNAMIC:
            # It changes with the next search, and is one client's own.
            return NO_HINT
        if sight != Sight(self.default, self._clients.dialect(""), viewer.era):
            # It is made for such a client, and another one must not be given it.
            return msgspec.structs.replace(hint, public=False)
        return hint

    def report(self) -> list[Shown]:
        """Every listing that was made or shown, for whoever watches the gateway."""
        return report(self._gallery.views, self.changes)

    # Whose list has changed.

    def affected(self, kind: Kind) -> Container[str] | None:
        """Whose listing is not what it was now that the catalog has changed; None is everybody's.

        Tools that do not exist any more leave the lists of those who had found them. Views take longer to be
        made anew: `refreshed` tells of them.
        """
        if kind is not Kind.TOOLS:
            return None
        self._pools.keep(self._everything.has)
        plain = {scene for scene in self._seen.scenes() if self._is_plain(scene)}
        told = self._told_of_few() | {
            visibility_group for visibility_group, seen in self._seen if seen.keys() & plain
        }
        if not self._shows_whole():
            return told
        others = {visibility_group for visibility_group, _ in self._seen} - told
        return AllBut(others) if others else None

    def _told_of_few(self) -> set[str]:
        """Those for whom the gateway's own tools, or what they have found, are not what they were."""
        # What all circles see alike is looked at once.
        searched: dict[Scene, str] = {}
        told: set[str] = set()
        for visibility_group, seen in self._seen:
            now = {
                scene: self._few_mark(visibility_group, scene, searched) for scene in seen if not scene.viewed
            }
            if any(digest != seen[scene] for scene, digest in now.items()):
                told.add(visibility_group)
                self._seen.tell(visibility_group, now)
        return told

    def _few_mark(self, visibility_group: str, scene: Scene, searched: dict[Scene, str]) -> str:
        if scene.sight.mode is Mode.DYNAMIC:
            return _mark(self._few(visibility_group, scene))
        if scene not in searched:
            searched[scene] = _mark(self._few(visibility_group, scene))
        return searched[scene]

    def _shows_whole(self) -> bool:
        """Whether clients that have not listed yet are going to see every tool as its server defined it."""
        if self.default is not Mode.AUTO:
            return self.default is Mode.FULL
        views = self._gallery.views.items()
        return all(view.mode is Mode.FULL for scene, view in views if scene.sight.mode is Mode.AUTO)

    async def refreshed(self) -> Collection[str]:
        """Whose view of the catalog is not what it was; views are made anew for that, before anybody asks."""
        scenes = self._seen.scenes() or (
            Scene(PLAIN, Sight(self.default, self._clients.dialect(""), Era.HANDSHAKE)),
        )
        for scene in [scene for scene in scenes if scene.viewed and not self._is_plain(scene)]:
            await self._gallery.view(scene)
        # Looked at when all are made: somebody may have listed meanwhile.
        marks = ((scene, self._viewed_mark(scene)) for scene in self._seen.scenes() if scene.viewed)
        digests = {scene: mark for scene, mark in marks if mark is not None}
        told = {
            visibility_group
            for visibility_group, seen in self._seen
            if any(digests.get(scene, digest) != digest for scene, digest in seen.items())
        }
        for visibility_group in told:
            self._seen.tell(visibility_group, digests)
        # What finds tools names the servers, also one that has none and so comes and goes without a change.
        return told | self._told_of_few()

    def _viewed_mark(self, scene: Scene) -> str | None:
        if self._is_plain(scene):
            return _PLAIN
        view = self._gallery.made(scene)
        return view.listing.digest if view is not None else None

    def forget_views(self) -> None:
        """What views are made of besides the catalog has changed."""
        self._gallery.forget()

    @property
    def searched(self) -> bool:
        """Whether some client sees less than everything, and is going to search."""
        few = (Mode.SEARCH, Mode.DYNAMIC)
        return self.default in few or any(view.left for view in self._gallery.views.values())

    def forget(self, visibility_group: str) -> None:
        """Its client is gone."""
        self._seen.forget(visibility_group)
        self._pools.forget(visibility_group)

    def close(self) -> None:
        """Make no more listings."""
        self._gallery.close()


def _named(name: str, request: Request) -> Request:
    return msgspec.structs.replace(request, name=name)


def _mark(tools: Sequence[Named]) -> str:
    """By which a few tools are known again in this process; bytes know their hash, so it costs little."""
    return str(hash(tuple(definition for _, definition in tools)))
