"""The same operations with nothing but the standard library, as one writes them in ten lines.

Each takes the text of a result and gives what an agent would be shown of it, at most `ROOM` characters, and
how many hits there are where that is counted.
"""

import difflib
import heapq
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

ROOM: Final = 8000
_EXCERPT: Final = 2000
_WORD: Final = re.compile(r"\w+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_HEADING: Final = re.compile(r"^(?:#{1,6} |\[[^\]]+\]$|[-\w.]+\s*[:=](?:\s|$))")


class Shown(NamedTuple):
    """What is shown, and how many hits there were."""

    text: str
    hits: int | None = None


Plain = Callable[[str], Shown]


def opened(result: str) -> Shown:
    """The text of a result."""
    return Shown(json.loads(result)["content"][0]["text"])


def excerpt_of_items(result: str) -> Shown:
    """As many of the first elements as fit."""
    document = json.loads(opened(result).text)
    shown = json.loads(_page(document["items"], _EXCERPT))
    return Shown(json.dumps(document | {"items": shown}, ensure_ascii=False))


def excerpt_of_lines(result: str) -> Shown:
    """The first lines that fit."""
    text = opened(result).text
    return Shown(text[: text.rindex("\n", 0, _EXCERPT)])


def filtered(text: str) -> Shown:
    """Two fields of every element."""
    kept = [
        {"id": item["id"], "customer": {"email": item["customer"]["email"]}}
        for item in json.loads(text)["items"]
    ]
    return Shown(_page(kept))


def matching_lines(pattern: str) -> Plain:
    """The lines that match."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        hits = [line for line in text.splitlines() if found.search(line)]
        return Shown("\n".join(hits)[:ROOM], len(hits))

    return search


def matching_items(pattern: str) -> Plain:
    """The elements in which a value matches."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        hits = [item for item in json.loads(text)["items"] if any(map(found.search, _strings(item)))]
        return Shown(_page(hits), len(hits))

    return search


def ranked(query: str, *, in_json: bool) -> Plain:
    """The five best pieces by BM25."""
    words = _WORD.findall(query.lower())

    def search(text: str) -> Shown:
        pieces = _pieces(text, in_json=in_json)
        counts = [Counter(_WORD.findall(piece.lower())) for piece in pieces]
        sizes = [count.total() for count in counts]
        mean = sum(sizes) / len(sizes)
        rare = {}
        for word in words:
            having = sum(word in count for count in counts)
            rare[word] = math.log(1 + (len(pieces) - having + 0.5) / (having + 0.5))

        def score(index: int) -> float:
            count, weight = counts[index], 1.2 * (0.25 + 0.75 * sizes[index] / mean)
            return sum(rare[word] * count[word] * 2.2 / (count[word] + weight) for word in words)

        best = heapq.nlargest(5, range(len(pieces)), key=score)
        return Shown("\n".join(pieces[index] for index in best)[:ROOM])

    return search


def alike(query: str, *, in_json: bool) -> Plain:
    """The first ten pieces that have words like all of the query's."""
    words = query.lower().split()

    def search(text: str) -> Shown:
        pieces = _pieces(text, in_json=in_json)
        own = [set(_LETTERS.findall(piece.lower())) for piece in pieces]
        known = set[str]().union(*own)
        near = [set(difflib.get_close_matches(word, known, n=16, cutoff=0.7)) for word in words]
        hits = [piece for piece, has in zip(pieces, own, strict=True) if all(has & forms for forms in near)]
        return Shown("\n".join(hits[:10])[:ROOM])

    return search


def around_lines(pattern: str, lines: int) -> Plain:
    """The first five hits, each with lines around it."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        every = text.splitlines()
        hits = [number for number, line in enumerate(every) if found.search(line)]
        shown = ("\n".join(every[max(0, hit - lines) : hit + lines + 1]) for hit in hits[:5])
        return Shown("\n--\n".join(shown)[:ROOM])

    return search


def around_values(pattern: str) -> Plain:
    """The smallest object around each of the first five hits."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        hits = [value for value in _objects(json.loads(text)) if any(map(found.search, _own_strings(value)))]
        return Shown(json.dumps(hits[:5], ensure_ascii=False)[:ROOM])

    return search


def fields(pattern: str) -> Plain:
    """The paths whose last name matches, with how often each is there."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        counts = Counter(path for path, _ in _walked(json.loads(text), ""))
        hits = {path: count for path, count in counts.items() if found.search(path.rpartition(".")[2])}
        return Shown(json.dumps(hits)[:ROOM], len(hits))

    return search


def headings(pattern: str) -> Plain:
    """The headings and keys that match."""
    found = re.compile(pattern)

    def search(text: str) -> Shown:
        hits = [
            f"{number}: {line}"
            for number, line in enumerate(text.splitlines(), 1)
            if _HEADING.match(line) and found.search(line)
        ]
        return Shown("\n".join(hits)[:ROOM], len(hits))

    return search


def outlined(text: str) -> Shown:
    """Every path down to three levels, with its types, how often it is there, and a sample."""
    types: defaultdict[str, Counter[str]] = defaultdict(Counter)
    samples: dict[str, Any] = {}
    for path, value in _walked(json.loads(text), ""):
        if path.count(".") <= 3:
            types[path][type(value).__name__] += 1
            if not isinstance(value, dict | list):
                samples.setdefault(path, value)
    told = {path: {"types": dict(count), "sample": samples.get(path)} for path, count in types.items()}
    return Shown(json.dumps(told, ensure_ascii=False)[:ROOM])


def counted(text: str) -> Shown:
    """How many lines, words and characters there are, and the head."""
    lines = text.splitlines()
    facts = {"lines": len(lines), "words": len(text.split()), "characters": len(text), "head": lines[:5]}
    return Shown(json.dumps(facts))


def last_items(text: str) -> Shown:
    """The last twenty elements."""
    return Shown(_page(json.loads(text)["items"][-20:]))


def last_lines(text: str) -> Shown:
    """The last twenty lines."""
    return Shown("\n".join(text.splitlines()[-20:]))


def grouped(text: str) -> Shown:
    """How many elements have each status, and the sum of their prices."""
    number: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for item in json.loads(text)["items"]:
        number[item["status"]] += 1
        total[item["status"]] += item["price"]
    return Shown(json.dumps([[status, number[status], total[status]] for status in number]))


def number_of_lines(part: str) -> Plain:
    """How many lines have it in them."""
    return lambda text: Shown(str(sum(part in line for line in text.splitlines())))


def _pieces(text: str, *, in_json: bool) -> list[str]:
    if not in_json:
        return text.splitlines()
    return [json.dumps(item, ensure_ascii=False) for item in json.loads(text)["items"]]


def _page(elements: Iterable[object], room: int = ROOM) -> str:
    """As many of the first as fit, as JSON."""
    shown: list[str] = []
    for element in elements:
        shown.append(json.dumps(element, ensure_ascii=False))
        room -= len(shown[-1]) + 2
        if room < 0:
            shown.pop()
            break
    return f"[{', '.join(shown)}]"


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)
    else:
        yield str(value)


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _objects(inner)


def _own_strings(value: dict[str, Any]) -> Iterator[str]:
    return (str(inner) for inner in value.values() if not isinstance(inner, dict | list))


def _walked(value: object, path: str) -> Iterator[tuple[str, object]]:
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walked(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _walked(inner, f"{path}[]")
