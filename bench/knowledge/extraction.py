"""Prints how well entities and relationships are found in the labelled passages, and how soon."""

import time
from typing import Final

from headgate.knowledge.extraction.extractor import extract
from testkit.labelled_entities import Score, chunk, passages, scores

_SPLITS: Final = (("dev", "tuned on"), ("test", "reported"))
# Enough for a second or two.
_COPIES: Final = 20


def main() -> None:
    """Print a table for each split, and the speed."""
    for split, purpose in _SPLITS:
        print(f"{split} ({purpose}, {len(passages(split))} passages)")
        print(f"  {'':14}{'precision':>10}{'recall':>10}{'F1':>10}{'right':>8}{'wrong':>8}{'missed':>8}")
        for kind, score in scores(split).items():
            print(f"  {kind:14}{_row(score)}")
    print(f"speed: {_megabytes_per_second():.2f} MB/s of one core")


def _row(score: Score) -> str:
    shares = "".join(f"{share:10.3f}" for share in (score.precision, score.recall, score.f1))
    return shares + "".join(f"{count:8}" for count in score)


def _megabytes_per_second() -> float:
    """Every passage as a document; most texts have fewer names, and are read sooner."""
    chunks = [chunk(passage.text) for split, _ in _SPLITS for passage in passages(split)] * _COPIES
    size = sum(len(one.text.encode()) for one in chunks)
    start = time.process_time()
    for one in chunks:
        extract([one])
    return size / 1e6 / (time.process_time() - start)


if __name__ == "__main__":
    main()
