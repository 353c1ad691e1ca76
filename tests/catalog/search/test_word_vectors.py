"""Common words have a meaning, and tools are compared with requests by it."""

import os
import subprocess
import sys

import pytest

from headgate.catalog.search.tool_document import vector_of_fields
from headgate.search.lexicon import CosineComparer, load_lexicon, related_terms, unit_vector
from headgate.search.text_analysis import terms
from tests.catalog.search.tools import OFFICE, index_of, tool


def nearness(request: str, *texts: str) -> list[float]:
    """The cosines of a request with texts that stand for descriptions of tools."""
    asked = unit_vector([(term, 1.0) for term in terms(request)], load_lexicon())
    assert asked is not None
    gists = [vector_of_fields(([], [], terms(text), [], []), load_lexicon()) for text in texts]
    return [CosineComparer([asked]).cosines(gist)[0] for gist in gists if gist is not None]


@pytest.mark.parametrize(
    ("request_text", "nearer", "farther"),
    [
        ("photograph", "picture", "invoice"),
        ("kubernetes pod", "docker container", "birthday cake"),
        ("symphony orchestra", "classical music concert", "tax declaration"),
        ("how warm is it outside", "weather temperature", "delete a file"),
    ],
)
def test_what_means_the_same_is_nearer(request_text: str, nearer: str, farther: str) -> None:
    one, other = nearness(request_text, nearer, farther)
    assert one > other + 0.1


def test_the_same_words_are_as_near_as_can_be() -> None:
    assert nearness("send an email", "send an email")[0] == pytest.approx(1.0, abs=0.02)


def test_several_directions_are_compared_at_once_as_if_each_were_alone() -> None:
    directions = [unit_vector([(word, 1.0)], load_lexicon()) for word in ("weather", "music", "invoic")]
    known = [one for one in directions if one is not None]
    gist = vector_of_fields((["music"], [], ["concert"], [], []), load_lexicon())
    assert gist is not None
    assert len(known) == 3
    alone = [CosineComparer([one]).cosines(gist)[0] for one in known]
    assert CosineComparer(known).cosines(gist) == alone


def test_words_that_nobody_knows_have_no_gist() -> None:
    assert unit_vector([("zzqxw", 1.0)], load_lexicon()) is None
    assert vector_of_fields(([], [], ["天气"], [], []), load_lexicon()) is None


def test_a_very_long_description_has_a_gist() -> None:
    assert nearness("weather", "weather forecast " * 50_000)[0] > 0.5


def test_a_word_has_neighbours_that_mean_nearly_the_same() -> None:
    near = related_terms("photograph")
    assert near["photo"] > 0.5
    assert all(0 < closeness <= 1 for closeness in near.values())
    assert "invoic" not in near


def test_what_shares_no_word_with_a_request_is_found_by_its_meaning() -> None:
    index = index_of([*OFFICE, tool("city", "nearby", "Shows food to order around you.")])
    assert [hit.key[1] for hit in index.search("pizza", floor=0.0)] == ["nearby"]
    explanation = index.explain("pizza", ("city", "nearby"))
    assert explanation is not None
    assert [(one.term, one.kind) for one in explanation.contributions] == [("food", "related")]


def test_of_two_that_have_the_same_words_the_one_that_means_it_comes_first() -> None:
    boats = tool("harbour", "bow", "The bow of ships and boats, near the anchor.")
    music = tool("concert", "bow", "The bow of violins and cellos, near the strings.")
    index = index_of([boats, music, *OFFICE])
    assert index.search("bow for sailing")[0].key[0] == "harbour"
    assert index.search("bow for an orchestra")[0].key[0] == "concert"


def test_meaning_counts_less_where_words_are_sure() -> None:
    index = index_of(OFFICE)
    sure = index.explain("delete a file from the disk", ("files", "delete-file"))
    unsure = index.explain("erase", ("files", "delete-file"))
    assert sure is not None
    assert unsure is not None
    assert sure.confidence > unsure.confidence
    assert 0 < sure.meaning_share < unsure.meaning_share
    assert (sure.words, sure.meaning) == (1.0, 1.0)


def test_where_no_word_has_a_known_meaning_words_decide_alone() -> None:
    index = index_of([tool("other", "werkzeug", "使用必应搜索指定的关键词"), *OFFICE])
    explanation = index.explain("搜索关键词", ("other", "werkzeug"))
    assert explanation is not None
    assert (explanation.words, explanation.meaning, explanation.meaning_share) == (1.0, None, 0.0)


SCRIPT = """
from tests.catalog.search.tools import OFFICE, index_of
print(index_of(OFFICE).search("erase the documents of yesterday, then mail what changed", 9, floor=0.0))
"""


def test_every_process_gives_the_same_answer() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1
    assert b"delete-file" in answers.pop()
