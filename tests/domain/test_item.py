"""An item under its public name is what its server wrote, but for the name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.domain.item import (
    KIND_BY_LIST_METHOD,
    DefinitionText,
    ItemKind,
    ParamHeader,
    UpstreamItem,
    publish_item,
)

TEXT = '{"x":1.0, "name" : "pay","name2":"pay"}'
START = TEXT.index('"pay"')
DEFINITION = DefinitionText(TEXT, START, START + 5)


def test_only_the_name_changes() -> None:
    assert DEFINITION.with_name("bank_pay") == b'{"x":1.0, "name" : "bank_pay","name2":"pay"}'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_is_written_as_json(name: str) -> None:
    assert json.loads(DEFINITION.with_name(name)) == {"x": 1.0, "name": name, "name2": "pay"}


def test_a_handshake_client_is_shown_the_other_definition_where_there_is_one() -> None:
    other = DefinitionText('{"name":"pay"}', 8, 13)
    mirrors = (ParamHeader(("amount",), "Amount"),)
    item = publish_item(ItemKind.TOOLS, "bank", UpstreamItem("pay", DEFINITION, other, mirrors), "bank_pay")
    assert item.handshake_definition == b'{"name":"bank_pay"}'
    assert (item.server, item.name, item.public_name, item.mirrored_parameters) == (
        "bank",
        "pay",
        "bank_pay",
        mirrors,
    )
    same = publish_item(ItemKind.TOOLS, "bank", UpstreamItem("pay", DEFINITION), "bank_pay")
    assert same.handshake_definition is same.definition


@pytest.mark.parametrize(
    ("kind", "notification"),
    [
        (ItemKind.TOOLS, "notifications/tools/list_changed"),
        (ItemKind.PROMPTS, "notifications/prompts/list_changed"),
        (ItemKind.RESOURCES, "notifications/resources/list_changed"),
        (ItemKind.TEMPLATES, "notifications/resources/list_changed"),
    ],
)
def test_templates_change_with_resources(kind: ItemKind, notification: str) -> None:
    assert kind.list_changed_method == notification
    assert KIND_BY_LIST_METHOD[kind.list_method] is kind
