"""One page of a listing is read as it came, and one odd item does not cost the others."""

import pytest

from headgate.domain.item import ItemKind
from headgate.upstream.upstream_listings import ListPage, read_list_page

HALF_A_CHARACTER = b'{"x":"cut \\ud83d"}'


def items(page: ListPage) -> list[bytes]:
    return [bytes(item) for item in page.items]


@pytest.mark.parametrize("item", [b"{}", HALF_A_CHARACTER])
def test_what_a_page_says_of_itself_is_kept(item: bytes) -> None:
    assert (
        bytes(read_list_page(ItemKind.TOOLS, b'{"tools":[' + item + b'],"_meta":{"a":[1]}}').meta)
        == b'{"a":[1]}'
    )
    assert not read_list_page(ItemKind.TOOLS, b'{"tools":[' + item + b"]}").meta


@pytest.mark.parametrize("kind", ItemKind)
def test_the_items_are_the_bytes_that_came(kind: ItemKind) -> None:
    page = read_list_page(
        kind, b'{"other":[1],"%s":[ {"a" : 1.0}, {}],"nextCursor":"n"}' % kind.result_member.encode()
    )
    assert items(page) == [b'{"a" : 1.0}', b"{}"]
    assert page.nextCursor == "n"


@pytest.mark.parametrize("kind", ItemKind)
@pytest.mark.parametrize("odd", [HALF_A_CHARACTER, b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"])
def test_an_item_that_no_parser_takes_does_not_cost_the_others(kind: ItemKind, odd: bytes) -> None:
    result = b'{"%s":[{"a":1},%s,{"b":2}],"nextCursor":"n"}' % (kind.result_member.encode(), odd)
    page = read_list_page(kind, result)
    assert {b'{"a":1}', b'{"b":2}'} <= set(items(page))
    assert page.nextCursor == "n"


@pytest.mark.parametrize("hint", [b'"ttlMs":"long"', b'"cacheScope":7', b'"ttlMs":[]'])
def test_a_hint_that_makes_no_sense_costs_only_the_hint(hint: bytes) -> None:
    page = read_list_page(ItemKind.TOOLS, b'{"tools":[{"a":1}],"nextCursor":"n",%s}' % hint)
    assert items(page) == [b'{"a":1}']
    assert (page.nextCursor, page.ttlMs, page.cacheScope) == ("n", None, "private")


@pytest.mark.parametrize("cursor", [b"null", b'""'])
def test_a_last_page_may_say_so_in_many_words(cursor: bytes) -> None:
    assert not read_list_page(ItemKind.TOOLS, b'{"tools":[],"nextCursor":%s}' % cursor).nextCursor


@pytest.mark.parametrize("result", [b"", b"[]", b"{}", b'{"tools":{}}', b'{"tools":[],"nextCursor":5}', b"{"])
def test_what_is_no_page_is_refused(result: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_list_page(ItemKind.TOOLS, result)
