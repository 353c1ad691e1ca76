"""Search libraries and the counter of tokens, in processes of the environment where they are installed."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.peers.install import python_of
from bench.retrieval.engine import Answers
from bench.retrieval.lexical import whole_text
from headgate.catalog.search.tool_document import ToolDocument

_SCRIPT: Final = Path(__file__).resolve().with_name("peer.py")
# The largest pool takes less than a minute.
_SECONDS: Final = 900.0


class Library:
    """One of the libraries, all texts of a document as one."""

    lexical = True

    def __init__(self, name: str) -> None:
        self.name = name

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""
        texts = [whole_text(document) for document in documents]
        said = _ask({"engine": self.name, "texts": texts, "queries": queries, "limit": limit})
        return Answers(
            found=[[documents[number].key for number in numbers] for numbers in said["found"]],
            index_seconds=said["index_seconds"],
            seconds=said["seconds"],
        )


def libraries() -> list[Library]:
    """Those whose packages could be installed here."""
    return [Library("bm25s"), Library("tantivy")]


def count_tokens(texts: Sequence[str]) -> list[int]:
    """How many tokens of o200k_base each text has."""
    counts: list[int] = _ask({"engine": "tokens", "texts": texts})["counts"]
    return counts


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    command = [str(python_of("retrieval")), str(_SCRIPT)]
    # One that fails says why on stderr.
    done = subprocess.run(
        command, input=msgspec.json.encode(question), check=True, stdout=subprocess.PIPE, timeout=_SECONDS
    )
    answer: dict[str, Any] = msgspec.json.decode(done.stdout)
    return answer
