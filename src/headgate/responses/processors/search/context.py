"""Search with surroundings: the paragraph, section, sentence, lines or JSON object around each hit."""

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec import Raw

from headgate.responses.content import Content, characters, clipped, is_json
from headgate.responses.params import Search, SearchMode
from headgate.responses.patterns import Pattern, compiled
from headgate.responses.processing import ProcessorResult, done
from headgate.responses.processors.search.assembly import Assembly
from headgate.responses.processors.search.findings import Container, Findings, parted, path_of
from headgate.responses.processors.search.hit_lines import line_numbers
from headgate.responses.processors.search.hit_passages import Passage, passages
from headgate.responses.processors.search.matching import Held, Matcher, opened_or_none
from headgate.responses.processors.search.tally import Tally
from headgate.responses.shares import shares

_MOST_SHOWN = 5
# Nobody reads more, and each of them is looked around in.
_MOST_FOUND = 1_000
# Less says nothing.
_FEWEST_CHARACTERS = 200
_DEEPEST = 64
_BETWEEN = b"\n--\n"


class ContextProcessor:
    """Shows what stands around each hit."""

    name = "context"

    def process(self, content: Content, params: Search) -> ProcessorResult:
        """What is around the first hits, as far as there is room. Raises Refused for a bad pattern."""
        pattern = compiled(
            params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
        )
        most = min(params.max_results or _MOST_SHOWN, max(params.room // _FEWEST_CHARACTERS, 1))
        params = msgspec.structs.replace(params, max_results=most)
        tally = Tally(SearchMode.CONTEXT, params, most=_MOST_FOUND)
        return (_in_json if is_json(content) else _in_text)(content, pattern, params, tally)


def _in_text(content: Content, pattern: Pattern, params: Search, tally: Tally) -> ProcessorResult:
    shown: list[Passage] = []
    hits: list[int] = []
    left = params.room
    for passage in tally.counted(passages(content, pattern, params, _limit(content, pattern, params))):
        if not tally.wanted:
            continue
        joins = bool(shown) and passage.joins(shown[-1])
        size = characters(passage.text(content)) + (1 if joins else len(_BETWEEN) if shown else 0)
        if not tally.tried(size <= left or not shown):
            continue
        left -= size
        hits.append(passage.hit[0])
        shown.append(passage.joined(shown.pop()) if joins else passage)
    numbers = line_numbers(content, hits)
    facts = {"context_type": params.context_type.value} | ({"lines": numbers} if numbers else {})
    made = _BETWEEN.join(passage.text(content) for passage in shown)
    return done(content, clipped(made, params.room), tally.metadata(facts))


def _limit(content: Content, pattern: Pattern, params: Search) -> int:
    """The most characters of one passage: as many as let a first page have as many passages as it may.

    The same for every page, so that each page goes on where the last one ended.
    """
    first = list(islice(passages(content, pattern, params, params.room), params.max_results))
    room = params.room - len(_BETWEEN) * max(len(first) - 1, 0)
    sizes = [characters(passage.text(content)) for passage in first]
    return params.room if sum(sizes) <= room else max(shares(sizes, room))


def _in_json(content: Content, pattern: Pattern, params: Search, tally: Tally) -> ProcessorResult:
    matcher = Matcher(pattern, content)
    found: list[tuple[bytes, Raw]] = []
    room = params.room - len("[]")
    for container, key, index, value in tally.counted(_objects(content, matcher)):
        if not tally.wanted:
            continue
        path = msgspec.json.encode("" if container is None else path_of(container, key, index))
        around = characters(path) + len('{"path":,"value":},')
        # Something of each value is to be seen too.
        if tally.tried(around + len("null") * (len(found) + 1) <= room):
            found.append((path, value))
            room -= around
        elif not found:
            tally.pass_over()
    limits = shares([len(value) for _, value in found], room)
    objects = [
        b'{"path":%b,"value":%b}' % (path, _shown(value, pattern, matcher, limit))
        for (path, value), limit in zip(found, limits, strict=True)
    ]
    return done(content, b"[%b]" % b",".join(objects), tally.metadata())


def _shown(value: Raw, pattern: Pattern, matcher: Matcher, room: int) -> bytes:
    """The value whole, or what matches in it."""
    data = memoryview(value)
    if len(data) <= room:
        return bytes(data)
    assembly = Assembly(pattern, is_object=data[0] == ord("{"), room=room)
    if data[0] not in b"{[":
        return assembly.cut_string(value, room) or b"null"
    for finding in Findings(matcher, room).of(value):
        if not assembly.add(finding, cut=True) and not finding.too_large:
            break
    return assembly.json()


_Place = tuple[Container | None, str | None, int, Raw]


def _objects(content: Content, matcher: Matcher) -> Iterator[_Place]:
    """The smallest object around each hit, once; a value that is in none stands for itself."""
    held = opened_or_none(content)
    if held is None:
        return
    whole: _Place | None = (None, None, 0, Raw(memoryview(content))) if isinstance(held, dict) else None
    told: dict[int, _Place] = {}
    for place in _smallest(held, Container(isinstance(held, dict)), whole, matcher):
        if id(place) not in told:
            # Kept, so that no other one gets the same id.
            told[id(place)] = place
            yield place


def _smallest(held: Held, container: Container, around: _Place | None, matcher: Matcher) -> Iterator[_Place]:
    keys, values = parted(held)
    for index in matcher.indexes(held):
        key, value = keys[index] if keys else None, values[index]
        place: _Place = (container, key, index, value)
        inner = opened_or_none(value) if container.depth < _DEEPEST else None
        is_object, inside = isinstance(inner, dict), False
        if inner is not None and not (key is not None and matcher.in_key(key)):
            deeper = container.inside(inner, key, index)
            for found in _smallest(inner, deeper, place if is_object else around, matcher):
                inside = True
                yield found
        if not inside:
            yield place if around is None or is_object else around
