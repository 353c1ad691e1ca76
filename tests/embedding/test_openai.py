"""The remote embedder against a real HTTP server: what it sends, what it makes of the answers."""

import json
import logging
import math
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding import openai
from headgate.embedding.embedder import EmbeddingQuery
from headgate.embedding.openai import OpenAIEmbedder
from testkit.embeddings_endpoint import (
    Reply,
    Script,
    embeddings,
    running_endpoint,
    vector_of,
)
from testkit.waiting import wait_until

KEY = "sk-not-for-anybody"


def numbers(vector: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


def failing(status: int, **headers: str) -> Script:
    """Answer with a status, and with the key, as careless servers do."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: (status, given, f'{{"error": {{"message": "wrong key {KEY}"}}}}'.encode())


def answering(value: Any) -> Script:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda _: (200, {}, body)


def silent(_: dict[str, Any]) -> Reply | None:
    return None


def items(*vectors: Any) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}


def test_vectors_come_back_in_the_order_of_the_texts_and_have_length_one() -> None:
    with running_endpoint(embeddings) as endpoint:
        vectors = OpenAIEmbedder(KEY, base_url=endpoint.url).embed(["a", "bcd"])
    assert [len(vector) for vector in vectors] == [16, 16]
    for vector, text in zip(vectors, ["a", "bcd"], strict=True):
        expected = vector_of(text)
        length = math.hypot(*expected)
        assert numbers(vector) == pytest.approx([number / length for number in expected])


def test_the_key_the_model_and_the_dimensions_are_sent() -> None:
    with running_endpoint(lambda asked: embeddings(asked, 8)) as endpoint:
        embedder = OpenAIEmbedder(KEY, base_url=endpoint.url + "/", model="small", dimensions=8)
        embedder.embed(["text"])
    assert endpoint.paths == ["/v1/embeddings"]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert endpoint.asked[0] == {
        "model": "small",
        "input": ["text"],
        "encoding_format": "float",
        "dimensions": 8,
    }


def test_without_a_key_no_authorization_is_sent() -> None:
    with running_endpoint(embeddings) as endpoint:
        OpenAIEmbedder(base_url=endpoint.url).embed(["text"])
    assert "Authorization" not in endpoint.headers[0]


def test_many_texts_go_out_in_batches_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    with running_endpoint(embeddings) as endpoint:
        vectors = OpenAIEmbedder(base_url=endpoint.url).embed(["x"] * 600, lambda *done: told.append(done))
    assert endpoint.batches == [256, 256, 88]
    assert told == [(256, 600), (512, 600), (600, 600)]
    assert len(vectors) == 600


def test_no_texts_ask_nothing() -> None:
    with running_endpoint(embeddings) as endpoint:
        assert OpenAIEmbedder(base_url=endpoint.url).embed([]) == []
    assert endpoint.asked == []


def test_an_empty_text_and_a_very_long_one_do_not_spoil_their_batch() -> None:
    with running_endpoint(embeddings) as endpoint:
        vectors = OpenAIEmbedder(base_url=endpoint.url).embed(["", "x" * 100_000])
    assert [len(text) for text in endpoint.asked[0]["input"]] == [1, openai.LONGEST_TEXT]
    assert len(vectors) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again_after_growing_waits(status: int) -> None:
    waits: list[float] = []
    with running_endpoint(failing(status), failing(status), embeddings) as endpoint:
        vectors = OpenAIEmbedder(base_url=endpoint.url, sleep=waits.append).embed(["text"])
    assert len(vectors) == 1
    assert waits == [0.5, 1.0]


def test_the_wait_that_the_endpoint_asks_for_is_kept() -> None:
    waits: list[float] = []
    with running_endpoint(failing(429, Retry_After="3"), embeddings) as endpoint:
        OpenAIEmbedder(base_url=endpoint.url, sleep=waits.append).embed(["text"])
    assert waits == [3.0]


def test_an_endpoint_that_asks_for_a_long_rest_is_away_at_once() -> None:
    waits: list[float] = []
    with (
        running_endpoint(failing(429, Retry_After="3600")) as endpoint,
        pytest.raises(EmbedderUnavailable, match="HTTP 429") as away,
    ):
        OpenAIEmbedder(base_url=endpoint.url, sleep=waits.append).embed(["text"])
    assert waits == []
    assert away.value.retry_after_seconds == 3600


@pytest.mark.parametrize("header", ["Wed, 21 Oct 2026 07:28:00 GMT", "nan", "-5", "soon"])
def test_a_wait_that_is_no_number_of_seconds_is_ignored(header: str) -> None:
    waits: list[float] = []
    with running_endpoint(failing(503, Retry_After=header), embeddings) as endpoint:
        OpenAIEmbedder(base_url=endpoint.url, sleep=waits.append).embed(["text"])
    assert waits == [0.5]


def test_attempts_end() -> None:
    waits: list[float] = []
    with running_endpoint(failing(500)) as endpoint, pytest.raises(EmbedderUnavailable, match="HTTP 500"):
        OpenAIEmbedder(base_url=endpoint.url, sleep=waits.append).embed(["text"])
    assert len(endpoint.asked) == openai.ATTEMPTS
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404])
def test_a_lasting_failure_is_not_tried_again(status: int) -> None:
    with (
        running_endpoint(failing(status)) as endpoint,
        pytest.raises(EmbedderUnavailable, match=f"HTTP {status}"),
    ):
        OpenAIEmbedder(KEY, base_url=endpoint.url).embed(["text"])
    assert len(endpoint.asked) == 1


def test_an_endpoint_that_never_answers_is_away() -> None:
    with running_endpoint(silent) as endpoint, pytest.raises(EmbedderUnavailable, match="in time"):
        OpenAIEmbedder(base_url=endpoint.url, timeout_seconds=0.05, sleep=lambda _: None).embed(["text"])


def test_an_endpoint_where_nobody_listens_is_away(free_port: int) -> None:
    embedder = OpenAIEmbedder(base_url=f"http://127.0.0.1:{free_port}/v1", sleep=lambda _: None)
    with pytest.raises(EmbedderUnavailable, match="ConnectionRefusedError"):
        embedder.embed(["text"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        {"data": "none"},
        {"data": [{"index": 0}]},
        {"data": [{"index": 0, "embedding": ["1"]}]},
        {"data": []},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        items([1.0, 0.0], [0.0, 1.0]),
        items([]),
        items([0.0, 0.0]),
        items([1e308, 1e308]),
    ],
    ids=str,
)
def test_garbage_is_no_vector_and_is_not_asked_for_again(content: Any) -> None:
    with running_endpoint(answering(content)) as endpoint, pytest.raises(EmbedderUnavailable):
        OpenAIEmbedder(base_url=endpoint.url).embed(["text"])
    assert len(endpoint.asked) == 1


def test_an_answer_that_breaks_off_is_tried_again() -> None:
    def broken(_: dict[str, Any]) -> Reply:
        return 200, {"Content-Length": "1000"}, b'{"data": ['

    with running_endpoint(broken, embeddings) as endpoint:
        assert len(OpenAIEmbedder(base_url=endpoint.url, sleep=lambda _: None).embed(["text"])) == 1


def test_vectors_of_other_dimensions_than_asked_for_are_refused() -> None:
    with (
        running_endpoint(embeddings) as endpoint,
        pytest.raises(EmbedderUnavailable, match="4 dimensions instead of 8"),
    ):
        OpenAIEmbedder(base_url=endpoint.url, dimensions=8).embed(["text"])


def test_dimensions_that_change_are_refused() -> None:
    with running_endpoint(embeddings, lambda asked: embeddings(asked, 6)) as endpoint:
        embedder = OpenAIEmbedder(base_url=endpoint.url)
        embedder.embed(["text"])
        assert embedder.dimensions == 4
        with pytest.raises(EmbedderUnavailable, match="6 dimensions instead of 4"):
            embedder.embed(["text"])


def test_a_question_and_its_clauses_go_out_at_once_and_only_once() -> None:
    question = EmbeddingQuery("find a flight, book a hotel", ((0, 13), (15, 27)))
    with running_endpoint(embeddings, failing(503)) as endpoint:
        embedder = OpenAIEmbedder(base_url=endpoint.url)
        assert len(embedder.embed_query(question)) == 3
        assert endpoint.asked[0]["input"] == [question.text, "find a flight", "book a hotel"]
        # A caller waits: a second attempt is for tools.
        with pytest.raises(EmbedderUnavailable, match="503"):
            embedder.embed_query(question)
    assert len(endpoint.asked) == 2


def test_closing_wakes_whoever_waits_for_an_answer() -> None:
    said: list[str] = []

    def embed() -> None:
        try:
            embedder.embed(["text"])
        except EmbedderUnavailable as away:
            said.append(str(away))

    with running_endpoint(silent) as endpoint:
        embedder = OpenAIEmbedder(base_url=endpoint.url)
        waiting = threading.Thread(target=embed)
        waiting.start()
        wait_until(lambda: bool(endpoint.asked), 5.0, "a request has come")
        embedder.close()
        waiting.join(5)
        assert not waiting.is_alive()
        with pytest.raises(EmbedderUnavailable, match="closed"):
            embedder.embed(["text"])
    assert len(said) == len(endpoint.asked) == 1


def test_closing_ends_the_rest_before_the_next_attempt() -> None:
    with running_endpoint(failing(429, Retry_After="7")) as endpoint:
        embedder = OpenAIEmbedder(base_url=endpoint.url)
        threading.Timer(0.05, embedder.close).start()
        began = time.monotonic()
        with pytest.raises(EmbedderUnavailable):
            embedder.embed(["text"])
        assert time.monotonic() - began < 5


def test_the_key_is_in_no_error_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running_endpoint(failing(401)) as endpoint, pytest.raises(EmbedderUnavailable) as away:
        OpenAIEmbedder(KEY, base_url=endpoint.url).embed(["text"])
    error: BaseException | None = away.value
    while error is not None:
        assert KEY not in f"{error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", ["sk-two\nlines", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        OpenAIEmbedder(key)
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["", "api.openai.com", "ftp://host", "http://", "http://u:p@host", "http://h:x", "http://["]
)
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        OpenAIEmbedder(base_url=url)


def test_another_model_or_another_endpoint_has_another_fingerprint() -> None:
    one = OpenAIEmbedder(KEY, model="small")
    assert one.fingerprint == OpenAIEmbedder("another key", model="small").fingerprint
    assert one.fingerprint != OpenAIEmbedder(KEY, model="large").fingerprint
    assert one.fingerprint != OpenAIEmbedder(KEY, model="small", base_url="http://127.0.0.1:1/v1").fingerprint
    assert one.fingerprint != OpenAIEmbedder(KEY, model="small", dimensions=256).fingerprint
