"""An item under its public name is what its server wrote, but for the name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.domain.item import Definition, Mirror, Source, published
from headgate.domain.kind import LISTED_BY, Kind

TEXT = '{"x":1.0, "name" : "pay","name2":"pay"}'
START = TEXT.index('"pay"')
DEFINITION = Definition(TEXT, START, START + 5)


def test_only_the_name_changes() -> None:
    assert DEFINITION.called("bank_pay") == b'{"x":1.0, "name" : "bank_pay","name2":"pay"}'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_is_written_as_json(name: str) -> None:
    assert json.loads(DEFINITION.called(name)) == {"x": 1.0, "name": name, "name2": "pay"}


def test_a_handshake_client_is_shown_the_other_definition_where_there_is_one() -> None:
    other = Definition('{"name":"pay"}', 8, 13)
    mirrors = (Mirror(("amount",), "Amount"),)
    item = published(Kind.TOOLS, "bank", Source("pay", DEFINITION, other, mirrors), "bank_pay")
    assert item.handshake_definition == b'{"name":"bank_pay"}'
    assert (item.server, item.name, item.public_name, item.mirrors) == ("bank", "pay", "bank_pay", mirrors)
    same = published(Kind.TOOLS, "bank", Source("pay", DEFINITION), "bank_pay")
    assert same.handshake_definition is same.definition


@pytest.mark.parametrize(
    ("kind", "notification"),
    [
        (Kind.TOOLS, "notifications/tools/list_changed"),
        (Kind.PROMPTS, "notifications/prompts/list_changed"),
        (Kind.RESOURCES, "notifications/resources/list_changed"),
        (Kind.TEMPLATES, "notifications/resources/list_changed"),
    ],
)
def test_templates_change_with_resources(kind: Kind, notification: str) -> None:
    assert kind.changed == notification
    assert LISTED_BY[kind.list_method] is kind
