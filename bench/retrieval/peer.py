"""One search library in its own environment: texts and queries come by stdin, what was found goes to stdout.

It is run as a script by the interpreter of `bench/peers/retrieval.lock` and imports nothing of this project.
"""

import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

# The numbers of the best texts for a query, at most so many.
Search = Callable[[str, int], list[int]]


def bm25s(texts: list[str]) -> Search:
    """The library with its English stop words."""
    library: Any = importlib.import_module("bm25s")

    def tokens(some: list[str]) -> Any:
        return library.tokenize(some, stopwords="en", show_progress=False)

    index = library.BM25()
    index.index(tokens(texts), show_progress=False)

    def search(query: str, limit: int) -> list[int]:
        most = min(limit, len(texts))
        found, scores = index.retrieve(tokens([query]), k=most, show_progress=False)
        return [int(number) for number, score in zip(found[0], scores[0], strict=True) if score > 0]

    return search


def tantivy(texts: list[str]) -> Search:
    """The library with its English stemmer."""
    library: Any = importlib.import_module("tantivy")
    builder = library.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="en_stem")
    builder.add_unsigned_field("number", stored=True, indexed=False)
    index = library.Index(builder.build())
    writer = index.writer(heap_size=50_000_000, num_threads=1)
    for number, text in enumerate(texts):
        writer.add_document(library.Document(text=text, number=number))
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def search(query: str, limit: int) -> list[int]:
        # The signs of its query language are no part of a request; its words in lower case are none either.
        words = " ".join(re.findall(r"\w+", query.lower()))
        if not words:
            return []
        hits = searcher.search(index.parse_query(words, ["text"]), limit).hits
        return [searcher.doc(address)["number"][0] for _, address in hits]

    return search


def tokens(texts: list[str]) -> list[int]:
    """How many tokens of o200k_base each text has."""
    library: Any = importlib.import_module("bpe_openai")
    encoding = library.get_encoding("o200k_base")
    return [len(encoding.encode_ordinary(text)) for text in texts]


def _answer(build: Callable[[list[str]], Search], asked: dict[str, Any]) -> dict[str, Any]:
    began = time.process_time()
    search = build(asked["texts"])
    index_seconds = time.process_time() - began
    found, seconds = [], []
    for query in asked["queries"]:
        began = time.process_time()
        found.append(search(query, asked["limit"]))
        seconds.append(time.process_time() - began)
    return {"found": found, "index_seconds": index_seconds, "seconds": seconds}


def main() -> None:
    """Do what is asked for, once."""
    asked = json.load(sys.stdin)
    if asked["engine"] == "tokens":
        answer: dict[str, Any] = {"counts": tokens(asked["texts"])}
    else:
        answer = _answer({"bm25s": bm25s, "tantivy": tantivy}[asked["engine"]], asked)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
