"""What a model reads of an answer: the same as a program, with the keys of lists named once."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.tools.response_modes import encode_answer
from headgate.results.compact_tables import from_compact_tables
from headgate.search.token_counter import count_tokens

VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\é漢\n{[', max_size=5)
LIKE = st.lists(st.sampled_from(["chunk_id", "rank", "via", "chunk_text"]), unique=True, min_size=1).flatmap(
    lambda keys: st.lists(st.fixed_dictionaries(dict.fromkeys(keys, VALUES)), max_size=4)
)
MIXED = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), max_size=4)
ANSWERS = st.dictionaries(
    st.sampled_from(["results", "entities", "missing", "pagination", "execution_time_ms", "_metadata"]),
    LIKE | MIXED | VALUES | st.lists(st.integers(0, 9)) | st.dictionaries(st.sampled_from("xy"), VALUES),
)


@settings(max_examples=200)
@given(ANSWERS)
def test_whatever_is_written_tells_all_that_the_answer_has(answer: dict[str, Any]) -> None:
    told = json.loads(from_compact_tables(encode_answer(answer)))
    assert told == answer if "_metadata" in answer else told == without_time(answer)


def without_time(answer: dict[str, Any]) -> dict[str, Any]:
    """All but how long it took."""
    return {key: value for key, value in answer.items() if key != "execution_time_ms"}


def found(number: int, **more: Any) -> dict[str, Any]:
    """A result as a search shows it."""
    return {"chunk_id": 1000 + number, "hybrid_score": round(1 / (60 + number), 6), "rank": number, **more}


def test_keys_of_like_things_are_named_once() -> None:
    answer = {"results": [found(1), found(2)], "total_found": 2}
    assert json.loads(encode_answer(answer)) == {
        "results": {
            "columns": ["chunk_id", "hybrid_score", "rank"],
            "rows": [[1001, 0.016393, 1], [1002, 0.016129, 2]],
        },
        "total_found": 2,
    }


def test_an_id_takes_about_ten_tokens() -> None:
    fifty, ten = (
        count_tokens(encode_answer({"results": [found(number) for number in range(1, many + 1)]}))
        for many in (50, 10)
    )
    assert 9 <= (fifty - ten) / 40 <= 11


def test_texts_stay_beside_their_keys() -> None:
    answer = {"results": [found(1, chunk_text="a"), found(2, chunk_text="b")]}
    assert json.loads(encode_answer(answer)) == answer


def test_one_thing_alone_and_things_that_differ_are_no_table() -> None:
    answer = {"results": [found(1)], "missing": [{"a": 1}, {"b": 2}], "odd": [{"a": 1}, None, "a"]}
    assert json.loads(encode_answer(answer)) == answer


def test_what_looks_like_a_table_already_is_not_mixed_up_with_one() -> None:
    attributes = {"columns": ["a"], "rows": [[1]]}
    answer = {"entities": [{"name": "A", "attributes": attributes}, {"name": "B", "attributes": {}}]}
    assert json.loads(encode_answer(answer)) == answer


def test_a_text_that_speaks_of_columns_is_no_table() -> None:
    answer = {"results": [found(1, source_file='{"columns":["a"],"rows":[]}'), found(2, source_file="b")]}
    assert json.loads(encode_answer(answer))["results"]["columns"][-1] == "source_file"
    assert json.loads(from_compact_tables(encode_answer(answer))) == answer


def test_the_same_answer_is_written_with_the_same_bytes_however_long_it_took() -> None:
    one, other = ({"results": [found(1)], "execution_time_ms": time} for time in (1.2, 30.4))
    assert encode_answer(one) == encode_answer(other)


def test_the_desktop_envelope_is_left_to_programs() -> None:
    answer = {"_metadata": {"status": "success"}, "results": [found(1), found(2)]}
    assert json.loads(encode_answer(answer)) == answer
