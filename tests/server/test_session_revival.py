"""A session outlives its gateway's memory of it: the id that the client keeps tells all that is needed."""

from typing import Any

import pytest

from headgate.domain.identity import LOCAL_IDENTITY, everything_visible
from headgate.server.change_notifier import ChangeNotifier
from headgate.server.client_context import InitializedClient
from headgate.server.http_request import HttpRequest
from headgate.server.outbound_queue import ConnectionBacklog, OutboundBudget
from headgate.server.reply import Reply
from headgate.server.sessions import HandshakeSession, HttpSession, SessionStore, TooManySessions
from headgate.storage.files.sealer import Sealer

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
DAY = 24 * 3600.0
CAPABILITIES = b'{"sampling":{}, "roots":{"listChanged":true}}'
GREETING = InitializedClient("2025-06-18", CAPABILITIES, b'{"name":"x","version":"1"}', Reply(b""))


class Clock:
    """A time of day that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Notebook(dict[str, tuple[str, list[str]]]):
    """Remembers what clients asked for."""

    def preferences(self, session: str) -> tuple[str, list[str]] | None:
        return self.get(session)

    def save_preferences(self, session: str, level: str, uris: list[str]) -> None:
        self.pop(session, None)
        if level or uris:
            self[session] = (level, uris)


class Start:
    """One start of a gateway after the other, with what outlives each."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.notebook = Notebook()
        self.closed: list[HandshakeSession] = []
        self.revived: list[HttpSession] = []

    def sessions(self, key: bytes = KEY, **settings: Any) -> SessionStore:
        self.clock.now += 1
        seal = Sealer([key], self.clock)
        given = {"max_sessions": 100, "idle_seconds": 60.0} | settings
        return SessionStore(
            ChangeNotifier(everything_visible),
            signer=seal,
            preference_store=self.notebook,
            on_close=self.closed.append,
            on_revival=self.revived.append,
            clock=self.clock,
            **given,
        )


@pytest.fixture
def start() -> Start:
    return Start()


def expire(sessions: SessionStore, session: HttpSession) -> None:
    session.last_used = float("-inf")
    sessions.expire()


def told(session: HttpSession) -> bytes:
    """What the client hears when it listens."""

    class Ear:
        outbound = ConnectionBacklog(OutboundBudget(), lambda: None)

        def write_parts(self, parts: list[bytes]) -> None: ...
        async def drain(self) -> None: ...
        def on_response_complete(self) -> None: ...

    stream = session.streams.open_standalone()
    stream.reader = HttpRequest("GET", "/mcp", "", {}, Ear())
    session.streams.flush_stale()
    stream.reader = None
    return b"".join(event.data for event in stream.events)


async def test_a_session_is_revived_after_a_restart(start: Start) -> None:
    before = start.sessions()
    old = before.open(GREETING, LOCAL_IDENTITY)
    again = start.sessions()
    session = again.get(old.id, LOCAL_IDENTITY)
    assert session is not None
    assert session is not old
    assert (session.id, session.version) == (old.id, "2025-06-18")
    assert session.capabilities == CAPABILITIES
    assert session.profile == old.profile
    assert session.profile.input_capabilities == {"roots", "sampling"}
    assert session.client_info == GREETING.client_info
    assert session.owner.id == old.owner.id == old.id.decode()
    assert again.revived == {"restart": 1, "idle": 0}
    assert again.get(old.id, LOCAL_IDENTITY) is session
    assert again.revived == {"restart": 1, "idle": 0}
    assert before.revived == {"restart": 0, "idle": 0}


async def test_a_session_is_revived_after_it_was_idle(start: Start) -> None:
    sessions = start.sessions()
    old = sessions.open(GREETING, LOCAL_IDENTITY)
    expire(sessions, old)
    assert len(sessions) == 0
    assert start.closed == [old]
    session = sessions.get(old.id, LOCAL_IDENTITY)
    assert session is not None
    assert session.version == "2025-06-18"
    assert sessions.revived == {"restart": 0, "idle": 1}


def ask_for_news(session: HttpSession) -> None:
    session.preferences.log_level = "warning"
    session.preferences.subscriptions |= {"a://two", "a://one"}
    session.preferences.notify_changed()


async def test_what_a_client_asked_for_is_there_again_when_it_comes_back(start: Start) -> None:
    old = start.sessions().open(GREETING, LOCAL_IDENTITY)
    ask_for_news(old)
    sessions = start.sessions()
    for _ in range(2):
        session = sessions.get(old.id, LOCAL_IDENTITY)
        assert session is not None
        assert session.preferences.log_level == "warning"
        assert session.preferences.subscriptions == {"a://one", "a://two"}
        assert start.revived[-1] is session
        expire(sessions, session)


async def test_nothing_is_remembered_of_a_session_that_its_client_ended(start: Start) -> None:
    sessions = start.sessions()
    session = sessions.open(GREETING, LOCAL_IDENTITY)
    ask_for_news(session)
    assert len(start.notebook) == 1
    sessions.close_session(session, by_client=True)
    assert not start.notebook


async def test_one_that_was_revived_and_idle_since_counts_as_idle(start: Start) -> None:
    id = start.sessions().open(GREETING, LOCAL_IDENTITY).id
    sessions = start.sessions()
    session = sessions.get(id, LOCAL_IDENTITY)
    assert session is not None
    expire(sessions, session)
    assert sessions.get(id, LOCAL_IDENTITY) is not None
    assert sessions.revived == {"restart": 1, "idle": 1}


async def test_a_revived_client_is_told_that_every_list_changed(start: Start) -> None:
    sessions = start.sessions()
    fresh = sessions.open(GREETING, LOCAL_IDENTITY)
    assert b"list_changed" not in told(fresh)
    expire(sessions, fresh)
    revived = sessions.get(fresh.id, LOCAL_IDENTITY)
    assert revived is not None
    heard = told(revived)
    for capability in (b"tools", b"prompts", b"resources"):
        assert heard.count(b'"notifications/%s/list_changed"' % capability) == 1


async def test_a_session_that_its_client_ended_stays_ended(start: Start) -> None:
    sessions = start.sessions()
    session, other = sessions.open(GREETING, LOCAL_IDENTITY), sessions.open(GREETING, LOCAL_IDENTITY)
    sessions.close_session(session, by_client=True)
    assert start.closed == [session]
    assert sessions.get(session.id, LOCAL_IDENTITY) is None
    assert sessions.get(other.id, LOCAL_IDENTITY) is other
    sessions.close_session(session, by_client=True)
    assert start.closed == [session]


async def test_sessions_without_end_do_not_fill_the_memory_of_those_that_ended(start: Start) -> None:
    sessions = start.sessions()
    ended = sessions.open(GREETING, LOCAL_IDENTITY)
    sessions.close_session(ended, by_client=True)
    for _ in range(10_050):
        sessions.close_session(sessions.open(GREETING, LOCAL_IDENTITY), by_client=True)
    # It is forgotten that it was ended; that this does no harm is all that is promised.
    assert sessions.get(ended.id, LOCAL_IDENTITY) is not None


async def test_an_id_that_was_changed_or_made_up_is_unknown(start: Start) -> None:
    sessions = start.sessions()
    id = start.sessions().open(GREETING, LOCAL_IDENTITY).id
    foreign = start.sessions(OTHER_KEY).open(GREETING, LOCAL_IDENTITY).id
    other_purpose = Sealer([KEY], start.clock).seal("state", b"\x94", 60).encode()
    other_content = Sealer([KEY], start.clock).seal("session", b"\x94", 60).encode()
    changed = [id[:place] + bytes([id[place] ^ 1]) + id[place + 1 :] for place in range(len(id))]
    for wrong in [b"", b"x", b"\xff\xfe", b"A" * 100_000, foreign, other_purpose, other_content, *changed]:
        assert sessions.get(wrong, LOCAL_IDENTITY) is None
    assert len(sessions) == 0
    assert sessions.get(id, LOCAL_IDENTITY) is not None


async def test_after_a_month_a_client_begins_again(start: Start) -> None:
    id = start.sessions().open(GREETING, LOCAL_IDENTITY).id
    start.clock.now += 29 * DAY
    assert start.sessions().get(id, LOCAL_IDENTITY) is not None
    start.clock.now += 2 * DAY
    assert start.sessions().get(id, LOCAL_IDENTITY) is None


@pytest.mark.parametrize(
    ("capabilities", "info", "revivable", "knows_info"),
    [(10, 10, True, True), (10, 5000, True, False), (5000, 10, False, False)],
)
async def test_a_client_that_says_much_of_itself_still_gets_a_short_id(
    start: Start, capabilities: int, info: int, *, revivable: bool, knows_info: bool
) -> None:
    declared = b'{"experimental":{"x":"%s"}}' % (b"x" * capabilities)
    greeting = InitializedClient("2025-11-25", declared, b'{"name":"%s"}' % (b"n" * info), Reply(b""))
    session = start.sessions().open(greeting, LOCAL_IDENTITY)
    assert session.capabilities == declared
    assert 32 <= len(session.id) <= 2048
    revived = start.sessions().get(session.id, LOCAL_IDENTITY)
    assert (revived is not None) is revivable
    if revived is not None:
        assert revived.capabilities == declared
        assert (revived.client_info == greeting.client_info) is knows_info


async def test_where_every_session_is_busy_none_is_opened_or_revived(start: Start) -> None:
    sessions = start.sessions(max_sessions=1)
    session = sessions.open(GREETING, LOCAL_IDENTITY)
    forgotten = start.sessions().open(GREETING, LOCAL_IDENTITY)
    session.running_requests.start(b"1", None)
    with pytest.raises(TooManySessions):
        sessions.open(GREETING, LOCAL_IDENTITY)
    with pytest.raises(TooManySessions):
        sessions.get(forgotten.id, LOCAL_IDENTITY)
    session.running_requests.finish(b"1")
    assert sessions.get(forgotten.id, LOCAL_IDENTITY) is not None
    assert start.closed == [session]
    # The one that had to make room comes back in the same way.
    assert sessions.get(session.id, LOCAL_IDENTITY) is not None
