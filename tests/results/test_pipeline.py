"""Processors one after the other: each gets what the one before has left, and none can fail the run."""

import json
from typing import Any

import pytest

from headgate.results.content import Content
from headgate.results.jobs import ProjectionParams, SearchParams
from headgate.results.pipeline import Pipeline, ProcessingError, ProcessorResult, processed, unchanged
from headgate.results.projection import ProjectionProcessor
from headgate.results.search.search_processor import SearchProcessor

USERS = json.dumps(
    [{"name": "a", "email": "a@gmail.com"}, {"name": "b", "email": "b@x.org"}, {"name": "gmail", "email": ""}]
).encode()


class Adding:
    """Writes its word behind the content, or does what else a test wants."""

    def __init__(self, name: str, failure: Exception | None = None) -> None:
        self.name = name
        self._failure = failure

    def process(self, content: Content, params: Any) -> ProcessorResult:
        if self._failure is not None:
            raise self._failure
        return processed(content, content[:] + str(params).encode(), {"added": params})


class Idle:
    name = "idle"

    def process(self, content: Content, params: Any) -> ProcessorResult:
        return unchanged(content, {"looked": True})


class Complaining:
    name = "complaining"

    def process(self, content: Content, params: Any) -> ProcessorResult:
        return ProcessorResult(
            content=b"half", original_size=1, processed_size=4, applied=True, error="half of it is missing"
        )


def test_each_gets_what_the_one_before_has_left_and_all_have_their_metadata() -> None:
    made = Pipeline([Adding("one"), Adding("two")]).run(b"0", {"one": 1, "two": 22})
    assert made.content == b"0122"
    assert made.metadata == {"one": {"added": 1}, "two": {"added": 22}}
    assert (made.original_size, made.processed_size, made.applied, made.error) == (1, 4, True, None)


def test_one_without_parameters_is_skipped() -> None:
    made = Pipeline([Adding("one"), Adding("two"), Adding("three")]).run(b"0", {"two": 2, "three": None})
    assert (made.content, made.metadata) == (b"02", {"two": {"added": 2}})
    nothing = Pipeline([Adding("one")]).run(b"0", {})
    assert (nothing.content, nothing.applied, nothing.error) == (b"0", False, None)


def test_one_that_has_nothing_to_do_leaves_the_content_and_may_say_so() -> None:
    made = Pipeline([Idle()]).run(b"0", {"idle": True})
    assert (made.content, made.applied, made.metadata) == (b"0", False, {"idle": {"looked": True}})


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ProcessingError("Give a name."), "Give a name."),
        (ValueError("no"), "two failed: ValueError: no"),
        (RecursionError("deep"), "two failed: RecursionError: deep"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "two failed: UnicodeDecodeError"),
    ],
)
def test_a_failure_is_an_error_of_the_run_which_leaves_everything_as_it_was(
    failure: Exception, error: str
) -> None:
    made = Pipeline([Adding("one"), Adding("two", failure), Adding("three")]).run(
        b"0", {"one": 1, "two": 2, "three": 3}
    )
    assert (made.error or "").startswith(error)
    assert (made.content, made.applied, made.processed_size) == (b"0", False, 1)
    assert list(made.metadata) == ["one"]


def test_an_error_that_is_given_is_one_as_well() -> None:
    made = Pipeline([Complaining()]).run(b"0", {"complaining": 1})
    assert (made.content, made.error, made.applied) == (b"0", "half of it is missing", False)


def test_a_projection_and_a_search_record_both_what_they_did() -> None:
    made = Pipeline([ProjectionProcessor(), SearchProcessor()]).run(
        USERS, {"projection": ProjectionParams(fields=("email",)), "search": SearchParams(pattern="gmail")}
    )
    # The third has the word in a field that is not there any more.
    assert json.loads(made.content[:]) == [{"email": "a@gmail.com"}]
    assert list(made.metadata) == ["projection", "search"]
    assert made.metadata["search"]["matches"] == 1
    assert (made.original_size, made.processed_size) == (len(USERS), len(made.content))
