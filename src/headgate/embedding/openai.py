"""The embedder of an endpoint with OpenAI's embeddings API."""

import hashlib
import math
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import msgspec

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.domain.regular_file import unusable_certificates
from headgate.embedding.embedder import QUERY_TIMEOUT_SECONDS, EmbeddingProgress, EmbeddingQuery

BASE_URL: Final = "https://api.openai.com/v1"
MODEL: Final = "text-embedding-3-small"
# Endpoints take up to 2,048 inputs and 300,000 tokens at once; this stays below the second as well.
BATCH_TEXTS: Final = 256
# A text longer than the model reads is refused and would take its whole batch with it.
LONGEST_TEXT: Final = 8_000
# The vectors of a batch are some megabytes of JSON at most.
LARGEST_ANSWER: Final = 64 * 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
# A stop waits for a connection that is being made, and for nothing else.
CONNECT_SECONDS: Final = 5.0
ATTEMPTS: Final = 4
FIRST_BACKOFF_SECONDS: Final = 0.5
# An endpoint that asks for a longer pause is unavailable: the caller continues with BM25 alone.
LONGEST_BACKOFF_SECONDS: Final = 8.0
RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class _EmbeddingItem(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingsResponse(msgspec.Struct):
    data: list[_EmbeddingItem]


class _AttemptFailed(Exception):
    """One attempt failed; `is_retryable` says whether another may succeed."""

    def __init__(self, reason: str, *, is_retryable: bool = False, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.is_retryable = is_retryable
        self.wait_seconds = wait_seconds


class OpenAIEmbedder:
    """Vectors of a remote model; the key goes into one header and nowhere else."""

    def __init__(
        self,
        key: str = "",
        *,
        base_url: str = BASE_URL,
        model: str = MODEL,
        dimensions: int = 0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Remember the endpoint; `dimensions` of 0 takes what the model gives."""
        self._connection, self._path = _endpoint(base_url)
        self._timeout_seconds = timeout_seconds
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if not key.isascii() or not key.isprintable():
            raise ConfigError(
                "the key of the embedder has characters that no header can carry",
                hint="copy the key again, without line breaks",
            )
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._model = model
        self._asked_dimensions = dimensions
        self._closing = threading.Event()
        self._open: set[HTTPConnection] = set()
        # A rest ends when the embedder is closed.
        self._sleep = sleep or self._closing.wait
        self.name = model
        self.dimensions = dimensions
        where = hashlib.sha256(f"{base_url}\n{model}\n{dimensions}".encode()).hexdigest()
        self.fingerprint = f"openai-{where[:24]}"

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """Embed all texts or raise EmbedderUnavailable, without the endpoint's own error text."""
        vectors: list[bytes] = []
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = texts[start : start + BATCH_TEXTS]
            vectors.extend(self._ask(batch, attempts=ATTEMPTS, timeout_seconds=self._timeout_seconds))
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Send one request with a short timeout: a caller waits."""
        return self._ask(question.texts, attempts=1, timeout_seconds=QUERY_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Break off what is under way."""
        self._closing.set()
        for connection in list(self._open):
            # A reader of the socket wakes up; the socket may be closed already, or not be connected yet.
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self, texts: Sequence[str], *, attempts: int, timeout_seconds: float) -> list[bytes]:
        # An empty input is refused; a space stands for it.
        payload: dict[str, object] = {
            "model": self._model,
            "input": [text[:LONGEST_TEXT].strip() or " " for text in texts],
            "encoding_format": "float",
        }
        if self._asked_dimensions:
            payload["dimensions"] = self._asked_dimensions
        body = msgspec.json.encode(payload)
        wait = FIRST_BACKOFF_SECONDS
        for attempt in range(1, attempts + 1):
            try:
                return self._read(self._post(body, timeout_seconds), len(texts))
            except _AttemptFailed as failed:
                rest = wait if failed.wait_seconds is None else failed.wait_seconds
                over = attempt == attempts or self._closing.is_set()
                if not failed.is_retryable or over or rest > LONGEST_BACKOFF_SECONDS:
                    raise EmbedderUnavailable(
                        self.name, str(failed), retry_after_seconds=failed.wait_seconds
                    ) from None
            self._sleep(rest)
            wait = min(LONGEST_BACKOFF_SECONDS, wait * 2)
        raise AssertionError("the last attempt returns or raises")

    def _post(self, body: bytes, timeout_seconds: float) -> bytes:
        connection = self._connection(min(CONNECT_SECONDS, timeout_seconds))
        self._open.add(connection)
        try:
            if self._closing.is_set():
                raise _AttemptFailed("it is closed")
            connection.connect()
            connection.sock.settimeout(timeout_seconds)
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            content = response.read(LARGEST_ANSWER + 1)
        except TimeoutError as late:
            raise _AttemptFailed("it did not answer in time", is_retryable=True) from late
        except (OSError, HTTPException) as lost:
            # The text of the exception may repeat a header; its type is enough.
            raise _AttemptFailed(
                f"it could not be reached ({type(lost).__name__})", is_retryable=True
            ) from lost
        finally:
            self._open.discard(connection)
            connection.close()
        if response.status != 200:
            raise _AttemptFailed(
                f"it answered HTTP {response.status}",
                is_retryable=response.status in RETRYABLE_STATUS,
                wait_seconds=_seconds(response.headers.get("Retry-After")),
            )
        if len(content) > LARGEST_ANSWER:
            raise _AttemptFailed("its answer is too large")
        # A bounded read does not report what is missing.
        if response.length:
            raise _AttemptFailed("its answer broke off", is_retryable=True)
        return content

    def _read(self, content: bytes, expected: int) -> list[bytes]:
        try:
            items = msgspec.json.decode(content, type=_EmbeddingsResponse).data
        except (msgspec.MsgspecError, UnicodeDecodeError) as garbage:
            raise _AttemptFailed("its answer is not a list of embeddings") from garbage
        # The specification does not promise the order, only the index.
        items.sort(key=lambda item: item.index)
        if [item.index for item in items] != list(range(expected)):
            raise _AttemptFailed(f"it answered {len(items)} vectors to {expected} texts")
        for item in items:
            found = len(item.embedding)
            self.dimensions = self.dimensions or found
            if found != self.dimensions:
                raise _AttemptFailed(f"a vector has {found} dimensions instead of {self.dimensions}")
        return [_unit(item.embedding) for item in items]


def _unit(numbers: list[float]) -> bytes:
    length = math.sqrt(sum(number * number for number in numbers))
    if not length or not math.isfinite(length):
        raise _AttemptFailed("a vector has no direction")
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def _endpoint(base_url: str) -> tuple[Callable[[float], HTTPConnection], str]:
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.username:
        raise ConfigError(
            "the base URL of the embedder must be http://HOST[:PORT]/PATH or https://…, without a user",
            hint=f"the usual one is {BASE_URL}",
        )
    name, secure = host, parts.scheme == "https"

    def connection(timeout_seconds: float) -> HTTPConnection:
        if not secure:
            return HTTPConnection(name, port, timeout=timeout_seconds)
        if unusable := unusable_certificates():
            raise _AttemptFailed(unusable)
        return HTTPSConnection(name, port, timeout=timeout_seconds)

    return connection, f"{parts.path.rstrip('/')}/embeddings"


def _seconds(header: str | None) -> float | None:
    """The seconds of Retry-After; a date counts as absent."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
