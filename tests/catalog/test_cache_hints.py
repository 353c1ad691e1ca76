"""What may be kept of a merged listing is what the strictest server allows."""

import pytest

from headgate.catalog.paged_listing import NO_HINT, CacheHint, strictest
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.item import ItemKind
from tests.catalog.sample_catalog import ROOTS, SAMPLING, catalog_of, tool


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ([], NO_HINT),
        ([CacheHint(5, True)], CacheHint(5, True)),
        ([CacheHint(5, True), CacheHint(3, True)], CacheHint(3, True)),
        ([CacheHint(5, True), CacheHint(7, False)], CacheHint(5, False)),
        ([CacheHint(5, True), NO_HINT], NO_HINT),
    ],
)
def test_the_strictest_wins(hints: list[CacheHint], expected: CacheHint) -> None:
    assert strictest(hints) == expected


def test_each_kind_and_profile_has_its_own() -> None:
    catalog = catalog_of("one", "two")
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a")], hint=CacheHint(100, public=True))
    # The other has not said anything yet, and will change the listing when it does.
    assert catalog.cache_hint(ItemKind.TOOLS, PLAIN_PROFILE) == NO_HINT
    catalog.replace_listing("two", ItemKind.TOOLS, [], hint=CacheHint(200, public=True))
    assert catalog.cache_hint(ItemKind.TOOLS, PLAIN_PROFILE) == CacheHint(100, public=True)
    assert catalog.cache_hint(ItemKind.PROMPTS, PLAIN_PROFILE) == NO_HINT
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a")], SAMPLING, CacheHint(50, public=False))
    assert catalog.cache_hint(ItemKind.TOOLS, SAMPLING) == CacheHint(50, public=False)
    assert catalog.cache_hint(ItemKind.TOOLS, ROOTS) == CacheHint(100, public=True)
    catalog.forget_profile(SAMPLING)
    assert catalog.cache_hint(ItemKind.TOOLS, SAMPLING) == CacheHint(100, public=True)


def test_a_new_hint_for_the_same_listing_counts() -> None:
    catalog = catalog_of("s")
    for milliseconds in (100, 200):
        catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")], hint=CacheHint(milliseconds))
        assert catalog.cache_hint(ItemKind.TOOLS, PLAIN_PROFILE).ttl_ms == milliseconds
