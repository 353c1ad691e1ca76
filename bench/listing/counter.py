"""The counter of tokens beside the reference: whether both count the same, and how fast each is."""

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, array, every_catalogue
from bench.peers.install import python_of
from headgate.search.token_counter import count_tokens

_REFERENCE: Final = Path(__file__).resolve().with_name("reference.py")
# It needs a second for what is asked here.
_SECONDS: Final = 300.0


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Every definition of every server, and every server's whole array; MB are a million bytes."""

    texts: int
    megabytes: float
    tokens: int
    # Texts of which both counted another number.
    different: int
    # With the vocabulary read and every word new, and once more.
    first_mb_per_second: float
    again_mb_per_second: float
    reference: str
    reference_mb_per_second: float


def counted() -> Counted:
    """Count with both, ours in a process that has counted nothing yet."""
    print("bench: listing, the counter of tokens", file=sys.stderr, flush=True)
    texts = _texts(every_catalogue())
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        first, again, counts = process.submit(count_twice).result()
    reference = _reference(texts)
    size = sum(map(len, texts)) / 1e6
    return Counted(
        texts=len(texts),
        megabytes=size,
        tokens=sum(counts),
        different=sum(one != other for one, other in zip(counts, reference.counts, strict=True)),
        first_mb_per_second=size / first,
        again_mb_per_second=size / again,
        reference=reference.name,
        reference_mb_per_second=size / reference.seconds,
    )


def count_twice() -> tuple[float, float, list[int]]:
    """CPU seconds of the first and of the second time, and the counts."""
    texts = _texts(every_catalogue())
    seconds = []
    for _ in range(2):
        began = time.process_time()
        counts = [count_tokens(text) for text in texts]
        seconds.append(time.process_time() - began)
    return seconds[0], seconds[1], counts


def _texts(catalogues: Sequence[Catalogue]) -> list[bytes]:
    return [text for one in catalogues for text in (*one.tools, array(one.tools))]


class _Reference(msgspec.Struct):
    name: str
    counts: list[int]
    seconds: float


def _reference(texts: Sequence[bytes]) -> _Reference:
    command = [str(python_of("retrieval")), str(_REFERENCE)]
    asked = msgspec.json.encode([text.decode() for text in texts])
    done = subprocess.run(command, input=asked, check=True, stdout=subprocess.PIPE, timeout=_SECONDS)
    return msgspec.json.decode(done.stdout, type=_Reference)
