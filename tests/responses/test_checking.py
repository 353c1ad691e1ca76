"""Mistakes are found before any tool is called for its result."""

import pytest

from headgate.responses.jobs import Excerpt, Look
from headgate.responses.params import Exploration, Projection, Query, Reading, Search, SearchMode
from headgate.responses.processing import Refused
from headgate.responses.work import check, perform
from tests.responses.results import opened, result, text

Part = Projection | Search | Exploration | Reading | Query
NAMES: dict[type, str] = {
    Projection: "projection",
    Search: "search",
    Exploration: "exploration",
    Reading: "reading",
    Query: "query",
}


def job(*parts: Part) -> Look:
    return Look(
        tool="proxy_search",
        cache_id="0a",
        room=100,
        **{NAMES[type(part)]: part for part in parts},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "part",
    [
        Projection(fields=("a", "b[")),
        Projection(exclude=("b[",)),
        Exploration(path="b["),
        Reading(path="b["),
        Query(sql="SELECT 1", path="b["),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_and_named(part: Part) -> None:
    with pytest.raises(Refused, match=r"b\["):
        check(job(part))


@pytest.mark.parametrize("mode", [SearchMode.REGEX, SearchMode.CONTEXT, SearchMode.STRUCTURE])
def test_a_pattern_that_is_none_is_refused_with_its_place(mode: SearchMode) -> None:
    with pytest.raises(Refused, match="position"):
        check(job(Search(pattern="a(b", mode=mode)))


@pytest.mark.parametrize("mode", [SearchMode.BM25, SearchMode.FUZZY])
def test_words_are_no_pattern(mode: SearchMode) -> None:
    check(job(Search(pattern="a(b", mode=mode)))


def test_what_can_be_done_is_let_through() -> None:
    check(job(Projection(fields=("users[].email",)), Search(pattern="^a|b$", multiline=True)))
    check(job(Exploration(), Reading(path="/users/0")))


def test_each_job_is_done_by_what_it_is() -> None:
    long = opened(result(text("a\nb\n" * 500)))
    cut = perform(Excerpt(cache_id="0a", limit=1, room=3, message="{cache_id}"), long)
    assert cut.metadata["excerpt"]["processed_size"] == len("a\n") + 1 + len("0a")
    made = opened(result(text("a\nb\nc")))
    assert perform(job(Reading()), made).metadata["read"]["total"] == 3
