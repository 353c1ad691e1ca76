"""An identity as a key: two owners never share one, and the local user's is as it always was."""

import pytest

from headgate.domain.identity import LOCAL_IDENTITY, Identity, IdentitySource, recorded_identity
from headgate.domain.mcp_request import ClientSession, result_owner_of, visibility_group_of
from headgate.server.sessions import HandshakeSession
from tests.access.granted import ALICE, BOB, OTHER_ALICE, visible
from tests.catalog.sample_listings import UnreachableChannel

OWNERS = [
    LOCAL_IDENTITY,
    ALICE,
    BOB,
    OTHER_ALICE,
    Identity(principal="alice"),
    Identity(tenant="acme"),
    Identity(principal="acme alice"),
    Identity(tenant="acme alice"),
]


def test_no_two_owners_share_a_key() -> None:
    session = ClientSession("id", UnreachableChannel())
    for key in (
        lambda one: one.owner,
        lambda one: one.owner_id,
        lambda one: one.owned_purpose("session"),
        lambda one: visibility_group_of(None, one),
        lambda one: visibility_group_of(session, one),
        lambda one: result_owner_of(session, one),
    ):
        assert len({key(one) for one in OWNERS}) == len(OWNERS)


def test_keys_of_the_local_user_are_as_before_there_were_identities() -> None:
    assert LOCAL_IDENTITY.owned_purpose("session") == "session"
    assert LOCAL_IDENTITY.owner_id == "principal local"
    session = ClientSession("id", UnreachableChannel())
    assert visibility_group_of(session, LOCAL_IDENTITY) == "id" == result_owner_of(session, LOCAL_IDENTITY)


@pytest.mark.parametrize("part", ["a\nprincipal b", "a\0b", "\x7f"])
def test_what_could_forge_a_key_is_no_identity(part: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        Identity(principal=part)
    with pytest.raises(ValueError, match="control characters"):
        Identity(tenant=part)


def test_an_owner_comes_back_from_a_record_and_sees_what_was_recorded() -> None:
    recorded = recorded_identity(*ALICE.owner)
    assert recorded.owner == ALICE.owner
    assert recorded.source is IdentitySource.RECORD
    assert visible(recorded).is_unrestricted


class Mailbox:
    """Takes no messages."""

    def try_send(self, message: bytes) -> bool:
        return False

    def retain_or_drop(self, message: bytes) -> None:
        raise AssertionError(message)


def test_a_session_follows_the_grants_of_its_owner_and_serves_no_other() -> None:
    session = HandshakeSession(Mailbox(), ALICE)
    fewer = Identity(tenant="acme", principal="alice", grants=("bank:pay",))
    assert session.accepts(ALICE)
    assert session.accepts(fewer)
    assert session.identity is fewer
    for other in (BOB, OTHER_ALICE, LOCAL_IDENTITY):
        assert not session.accepts(other)
    assert session.identity is fewer
