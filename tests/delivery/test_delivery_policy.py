"""The class of a tool is what its operator says, else what a trusted server says of it, else the worst."""

import msgspec
import pytest

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.domain.item import Item, ItemKind
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.domain.upstream_policy import (
    DEFAULT_UPSTREAM_POLICY,
    Probe,
    ToolClass,
    ToolSafety,
    UpstreamPolicy,
)


def _delivery_policy(policy: UpstreamPolicy = DEFAULT_UPSTREAM_POLICY) -> DeliveryPolicy:
    return DeliveryPolicy([_spec(policy)])


def _spec(policy: UpstreamPolicy) -> ServerSpec:
    return ServerSpec(name="bank", transport=TransportType.STDIO, command="bank", policy=policy)


def _tool(annotations: object = None, *, kind: ItemKind = ItemKind.TOOLS, name: str = "pay") -> Item:
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
    assert _delivery_policy().tool_class(_tool(annotations)) is kind


def test_the_word_of_a_server_that_is_not_trusted_counts_for_nothing() -> None:
    delivery_policy = _delivery_policy(UpstreamPolicy(trusts_annotations=False))
    assert delivery_policy.tool_class(_tool({"readOnlyHint": True})) is ToolClass.UNSAFE


def test_a_definition_that_cannot_be_read_says_nothing() -> None:
    item = Item(ItemKind.TOOLS, "bank", "pay", "bank_pay", b'{"annotations":{"readOnlyHint":tru')
    assert _delivery_policy().tool_class(item) is ToolClass.UNSAFE


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (ToolSafety(kind=ToolClass.UNSAFE), ToolClass.UNSAFE),
        (ToolSafety(kind=ToolClass.READ), ToolClass.READ),
        (ToolSafety(key_argument="key"), ToolClass.KEYED),
        (ToolSafety(key_header="Idempotency-Key"), ToolClass.KEYED),
        (ToolSafety(probe=Probe(tool="was_paid")), ToolClass.PROBEABLE),
        (ToolSafety(key_argument="key", probe=Probe(tool="was_paid")), ToolClass.KEYED),
        (ToolSafety(kind=ToolClass.UNSAFE, key_argument="key"), ToolClass.UNSAFE),
        (ToolSafety(kind=ToolClass.KEYED, key_argument="key"), ToolClass.KEYED),
        # There is no setting of where the key goes.
        (ToolSafety(kind=ToolClass.KEYED), ToolClass.UNSAFE),
    ],
)
def test_the_operator_knows_better(policy: ToolSafety, kind: ToolClass) -> None:
    for said in (UpstreamPolicy(all=policy), UpstreamPolicy(tools={"p*": policy})):
        assert _delivery_policy(said).tool_class(_tool({"idempotentHint": True})) is kind


def test_what_only_reads_needs_no_key_and_no_probe() -> None:
    for policy in (ToolSafety(key_argument="key"), ToolSafety(probe=Probe(tool="was_paid"))):
        assert (
            _delivery_policy(UpstreamPolicy(all=policy)).tool_class(_tool({"readOnlyHint": True}))
            is ToolClass.READ
        )


@pytest.mark.parametrize(
    ("policy", "annotations", "kind"),
    [
        (UpstreamPolicy(), None, ToolClass.KEYED),
        (UpstreamPolicy(), {"idempotentHint": True}, ToolClass.IDEMPOTENT),
        (UpstreamPolicy(all=ToolSafety(kind=ToolClass.KEYED)), None, ToolClass.KEYED),
        (UpstreamPolicy(all=ToolSafety(kind=ToolClass.UNSAFE)), None, ToolClass.UNSAFE),
        (UpstreamPolicy(trusts_annotations=False), None, ToolClass.UNSAFE),
    ],
)
def test_a_server_that_honours_keys_makes_its_tools_keyed(
    policy: UpstreamPolicy, annotations: object, kind: ToolClass
) -> None:
    delivery_policy = DeliveryPolicy([_spec(policy)], honours_keys=lambda server: server == "bank")
    assert delivery_policy.tool_class(_tool(annotations)) is kind


def test_what_is_said_of_one_tool_completes_what_is_said_of_all() -> None:
    policy = UpstreamPolicy(all=ToolSafety(ledger="all"), tools={"pay": ToolSafety(key_argument="key")})
    delivery_policy = _delivery_policy(policy)
    assert delivery_policy.records_every_call(_tool())
    assert delivery_policy.tool_class(_tool()) is ToolClass.KEYED
    assert delivery_policy.tool_class(_tool(name="other")) is ToolClass.UNSAFE


def test_only_tools_are_recorded() -> None:
    delivery_policy = _delivery_policy(UpstreamPolicy(all=ToolSafety(ledger="all")))
    assert delivery_policy.records_every_call(_tool())
    assert not delivery_policy.records_every_call(_tool(kind=ItemKind.PROMPTS))


def test_nothing_is_special_about_a_server_of_which_nothing_is_said() -> None:
    delivery_policy = _delivery_policy()
    assert delivery_policy.configured_safety(_tool()) is None
    assert not delivery_policy.records_every_call(_tool())
    unknown = Item(ItemKind.TOOLS, "stranger", "pay", "stranger_pay")
    assert delivery_policy.configured_safety(unknown) is None
    assert delivery_policy.tool_class(unknown) is ToolClass.UNSAFE


def test_the_servers_may_change() -> None:
    delivery_policy = _delivery_policy(UpstreamPolicy(all=ToolSafety(ledger="all")))
    delivery_policy.apply([])
    assert not delivery_policy.records_every_call(_tool())


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {"amount": {}, "key": {}}}, ToolClass.KEYED),
        # A typing mistake in the configuration must not make a payment happen twice.
        ({"properties": {"amount": {}}}, ToolClass.UNSAFE),
        # A tool without a schema may take anything.
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
    item = Item(ItemKind.TOOLS, "bank", "pay", "bank_pay", definition)
    assert (
        _delivery_policy(UpstreamPolicy(all=ToolSafety(kind=said, key_argument="key"))).tool_class(item)
        is kind
    )
