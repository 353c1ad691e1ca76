"""Mistakes are found before any tool is called for its result."""

import pytest

from headgate.results.job_runner import run_job, validate_job
from headgate.results.jobs import (
    ExcerptJob,
    ExploreParams,
    ProjectionParams,
    QueryParams,
    ReadJob,
    ReadParams,
    SearchMode,
    SearchParams,
)
from headgate.results.pipeline import ProcessingError
from tests.results.sample_results import parsed_result, result, text

Part = ProjectionParams | SearchParams | ExploreParams | ReadParams | QueryParams
NAMES: dict[type, str] = {
    ProjectionParams: "projection",
    SearchParams: "search",
    ExploreParams: "exploration",
    ReadParams: "reading",
    QueryParams: "query",
}


def job(*parts: Part) -> ReadJob:
    return ReadJob(
        tool="proxy_search",
        cache_id="0a",
        room=100,
        **{NAMES[type(part)]: part for part in parts},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "part",
    [
        ProjectionParams(fields=("a", "b[")),
        ProjectionParams(exclude=("b[",)),
        ExploreParams(path="b["),
        ReadParams(path="b["),
        QueryParams(sql="SELECT 1", path="b["),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_and_named(part: Part) -> None:
    with pytest.raises(ProcessingError, match=r"b\["):
        validate_job(job(part))


@pytest.mark.parametrize("mode", [SearchMode.REGEX, SearchMode.CONTEXT, SearchMode.STRUCTURE])
def test_a_pattern_that_is_none_is_refused_with_its_place(mode: SearchMode) -> None:
    with pytest.raises(ProcessingError, match="position"):
        validate_job(job(SearchParams(pattern="a(b", mode=mode)))


@pytest.mark.parametrize("mode", [SearchMode.BM25, SearchMode.FUZZY])
def test_words_are_no_pattern(mode: SearchMode) -> None:
    validate_job(job(SearchParams(pattern="a(b", mode=mode)))


def test_what_can_be_done_is_let_through() -> None:
    validate_job(
        job(ProjectionParams(fields=("users[].email",)), SearchParams(pattern="^a|b$", multiline=True))
    )
    validate_job(job(ExploreParams(), ReadParams(path="/users/0")))


def test_each_job_is_done_by_what_it_is() -> None:
    long = parsed_result(result(text("a\nb\n" * 500)))
    cut = run_job(ExcerptJob(cache_id="0a", limit=1, room=3, message="{cache_id}"), long)
    assert cut.metadata["excerpt"]["processed_size"] == len("a\n") + 1 + len("0a")
    made = parsed_result(result(text("a\nb\nc")))
    assert run_job(job(ReadParams()), made).metadata["read"]["total"] == 3
