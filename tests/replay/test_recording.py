"""The recording holds enough real packages, each asked for everything that it offers."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.replay.recording import LISTS, PATH, Conversation, conversations

CAST = list(conversations())
OFFERED_BY = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
README = Path(PATH).with_name("README.md").read_text(encoding="utf-8")


def test_there_are_twenty_packages_and_more_of_both_registries_and_both_eras() -> None:
    assert len({played.package for played in CAST}) == len(CAST) >= 20
    assert set(Counter(played.package.split(" ")[0] for played in CAST)) == {"npm", "pypi"}
    assert set(Counter(played.era for played in CAST)) == {"handshake", "stateless"}


@pytest.mark.parametrize("played", CAST, ids=lambda played: played.server)
def test_every_listing_that_is_offered_was_recorded_to_its_end(played: Conversation) -> None:
    for method, capability in OFFERED_BY.items():
        pages = played.pages(method)
        assert bool(pages) == (capability in played.greeting["capabilities"])
        assert not any(json.loads(page.result or "{}").get("nextCursor") for page in pages[-1:])
    # Some servers have resources and know no templates.
    assert all(page.result is not None for method in list(LISTS)[:3] for page in played.pages(method))


@pytest.mark.parametrize("played", CAST, ids=lambda played: played.server)
def test_a_call_succeeded(played: Conversation) -> None:
    results = [call.result for call in played.requests if call.method == "tools/call"]

    assert any(result is not None and not json.loads(result).get("isError") for result in results)


@pytest.mark.parametrize("played", CAST, ids=lambda played: played.server)
def test_the_source_and_its_licence_are_named(played: Conversation) -> None:
    assert f"| {played.package} | {played.licence} | {played.era} |" in README
