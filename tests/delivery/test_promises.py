"""The class of a tool is what its operator says, else what a trusted server says of it, else the worst."""

import msgspec
import pytest

from headgate.delivery.promises import Promises
from headgate.domain.care import PLAIN_CARE, Care, Probe, ServerCare, ToolClass
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.server import ServerSpec, Transport


def _promises(care: ServerCare = PLAIN_CARE) -> Promises:
    return Promises([_spec(care)])


def _spec(care: ServerCare) -> ServerSpec:
    return ServerSpec(name="bank", transport=Transport.STDIO, command="bank", care=care)


def _tool(annotations: object = None, *, kind: Kind = Kind.TOOLS, name: str = "pay") -> Item:
    definition = msgspec.json.encode({"name": name, "annotations": annotations})
    return Item(kind, "bank", name, f"bank_{name}", definition)


@pytest.mark.parametrize(
    ("annotations", "kind"),
    [
        ({"readOnlyHint": True}, ToolClass.READ),
        ({"idempotentHint": True}, ToolClass.IDEMPOTENT),
        ({"readOnlyHint": True, "idempotentHint": False, "title": "x"}, ToolClass.READ),
        ({"readOnlyHint": False, "idempotentHint": False}, ToolClass.UNSAFE),
        ({"destructiveHint": False}, ToolClass.UNSAFE),
        ({}, ToolClass.UNSAFE),
        (None, ToolClass.UNSAFE),
        # What is not as the protocol has it says nothing.
        ({"readOnlyHint": "yes"}, ToolClass.UNSAFE),
        ({"readOnlyHint": 1}, ToolClass.UNSAFE),
        (["readOnlyHint"], ToolClass.UNSAFE),
    ],
)
def test_a_trusted_server_says_what_its_tools_do(annotations: object, kind: ToolClass) -> None:
    assert _promises().kind(_tool(annotations)) is kind


def test_the_word_of_a_server_that_is_not_trusted_counts_for_nothing() -> None:
    promises = _promises(ServerCare(trusts_annotations=False))
    assert promises.kind(_tool({"readOnlyHint": True})) is ToolClass.UNSAFE


def test_a_definition_that_cannot_be_read_says_nothing() -> None:
    item = Item(Kind.TOOLS, "bank", "pay", "bank_pay", b'{"annotations":{"readOnlyHint":tru')
    assert _promises().kind(item) is ToolClass.UNSAFE


@pytest.mark.parametrize(
    ("care", "kind"),
    [
        (Care(kind=ToolClass.UNSAFE), ToolClass.UNSAFE),
        (Care(kind=ToolClass.READ), ToolClass.READ),
        (Care(key_argument="key"), ToolClass.KEYED),
        (Care(key_header="Idempotency-Key"), ToolClass.KEYED),
        (Care(probe=Probe(tool="was_paid")), ToolClass.PROBEABLE),
        (Care(key_argument="key", probe=Probe(tool="was_paid")), ToolClass.KEYED),
        (Care(kind=ToolClass.UNSAFE, key_argument="key"), ToolClass.UNSAFE),
        (Care(kind=ToolClass.KEYED, key_argument="key"), ToolClass.KEYED),
        # Nobody says where the key would go.
        (Care(kind=ToolClass.KEYED), ToolClass.UNSAFE),
    ],
)
def test_the_operator_knows_better(care: Care, kind: ToolClass) -> None:
    for said in (ServerCare(all=care), ServerCare(tools={"p*": care})):
        assert _promises(said).kind(_tool({"idempotentHint": True})) is kind


def test_what_only_reads_needs_no_key_and_no_probe() -> None:
    for care in (Care(key_argument="key"), Care(probe=Probe(tool="was_paid"))):
        assert _promises(ServerCare(all=care)).kind(_tool({"readOnlyHint": True})) is ToolClass.READ


@pytest.mark.parametrize(
    ("care", "annotations", "kind"),
    [
        (ServerCare(), None, ToolClass.KEYED),
        (ServerCare(), {"idempotentHint": True}, ToolClass.IDEMPOTENT),
        (ServerCare(all=Care(kind=ToolClass.KEYED)), None, ToolClass.KEYED),
        (ServerCare(all=Care(kind=ToolClass.UNSAFE)), None, ToolClass.UNSAFE),
        (ServerCare(trusts_annotations=False), None, ToolClass.UNSAFE),
    ],
)
def test_a_server_that_honours_keys_makes_its_tools_keyed(
    care: ServerCare, annotations: object, kind: ToolClass
) -> None:
    promises = Promises([_spec(care)], honours_keys=lambda server: server == "bank")
    assert promises.kind(_tool(annotations)) is kind


def test_what_is_said_of_one_tool_completes_what_is_said_of_all() -> None:
    care = ServerCare(all=Care(ledger="all"), tools={"pay": Care(key_argument="key")})
    promises = _promises(care)
    assert promises.records(_tool())
    assert promises.kind(_tool()) is ToolClass.KEYED
    assert promises.kind(_tool(name="other")) is ToolClass.UNSAFE


def test_only_tools_are_recorded() -> None:
    promises = _promises(ServerCare(all=Care(ledger="all")))
    assert promises.records(_tool())
    assert not promises.records(_tool(kind=Kind.PROMPTS))


def test_nothing_is_special_about_a_server_of_which_nothing_is_said() -> None:
    promises = _promises()
    assert promises.special(_tool()) is None
    assert not promises.records(_tool())
    unknown = Item(Kind.TOOLS, "stranger", "pay", "stranger_pay")
    assert promises.special(unknown) is None
    assert promises.kind(unknown) is ToolClass.UNSAFE


def test_the_servers_may_change() -> None:
    promises = _promises(ServerCare(all=Care(ledger="all")))
    promises.apply([])
    assert not promises.records(_tool())


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {"amount": {}, "key": {}}}, ToolClass.KEYED),
        # A typing mistake in the configuration must not make a payment happen twice.
        ({"properties": {"amount": {}}}, ToolClass.UNSAFE),
        # Whoever does not say what a tool takes may take anything.
        ({"type": "object"}, ToolClass.KEYED),
        ({"properties": None}, ToolClass.KEYED),
        (None, ToolClass.KEYED),
    ],
)
@pytest.mark.parametrize("said", [None, ToolClass.KEYED])
def test_a_key_counts_only_where_the_tool_may_have_such_an_argument(
    schema: object, kind: ToolClass, said: ToolClass | None
) -> None:
    definition = msgspec.json.encode({"name": "pay", "inputSchema": schema})
    item = Item(Kind.TOOLS, "bank", "pay", "bank_pay", definition)
    assert _promises(ServerCare(all=Care(kind=said, key_argument="key"))).kind(item) is kind
