"""Search: the lines of a text, or the parts of a JSON document, that a regular expression matches."""

from collections.abc import Mapping

from headgate.responses.content import Content, first_sign, is_json
from headgate.responses.params import Search, SearchMode
from headgate.responses.patterns import Pattern, compiled
from headgate.responses.processing import Processor, ProcessorResult, done
from headgate.responses.processors.ranking.bm25 import Bm25Processor
from headgate.responses.processors.ranking.fuzzy import FuzzyProcessor
from headgate.responses.processors.search.assembly import Assembly
from headgate.responses.processors.search.context import ContextProcessor
from headgate.responses.processors.search.findings import Findings
from headgate.responses.processors.search.hit_lines import (
    LinesPage,
    followed,
    hit_lines,
    line_numbers,
    longest_line,
)
from headgate.responses.processors.search.matching import Matcher
from headgate.responses.processors.search.structure import StructureProcessor
from headgate.responses.processors.search.tally import Tally

# Of so many lines the numbers are told.
_MOST_NUMBERS = 20
# Of what is too large to show so many paths are told.
_MOST_PATHS = 3
_LONGEST_PATH = 100


class GrepProcessor:
    """Searches by regular expression, and hands every other way of searching to the one that knows it."""

    name = "search"

    def __init__(self, others: Mapping[SearchMode, Processor] | None = None) -> None:
        self._others = _others() if others is None else others

    def process(self, content: Content, params: Search) -> ProcessorResult:
        """What matches, as much of it as there is room for. Raises Refused for a pattern that is none."""
        if params.mode is not SearchMode.REGEX:
            return self._others[params.mode].process(content, params)
        pattern = compiled(
            params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
        )
        return (_in_json if is_json(content) else _in_text)(content, pattern, params)


def _others() -> dict[SearchMode, Processor]:
    return {
        SearchMode.BM25: Bm25Processor(),
        SearchMode.FUZZY: FuzzyProcessor(),
        SearchMode.CONTEXT: ContextProcessor(),
        SearchMode.STRUCTURE: StructureProcessor(),
    }


def _in_text(content: Content, pattern: Pattern, params: Search) -> ProcessorResult:
    page = LinesPage(content, before=params.before, after=params.after, room=params.room)
    tally = Tally(SearchMode.REGEX, params, most=pattern.most_hits)
    shown: list[int] = []
    found = followed(hit_lines(content, pattern))
    longest: int | None = None
    for lines, following in tally.counted(found):
        if longest is None:
            longest = longest_line(params.room, many=following is not None or params.offset > 0)
        if tally.wanted and tally.tried(page.add(lines, following, longest)):
            shown.append(lines.start)
    numbers = line_numbers(content, list(dict.fromkeys(shown))[:_MOST_NUMBERS])
    return done(content, page.text(), tally.metadata({"lines": numbers} if numbers else {}))


def _in_json(content: Content, pattern: Pattern, params: Search) -> ProcessorResult:
    assembly = Assembly(pattern, is_object=first_sign(content) == b"{", room=params.room)
    tally = Tally(SearchMode.REGEX, params, most=pattern.most_hits)
    too_large: list[str] = []
    for finding in tally.counted(Findings(Matcher(pattern, content), params.room).of(content)):
        if not tally.wanted or tally.tried(assembly.add(finding, cut=tally.shown == 0)):
            continue
        if finding.too_large or not tally.shown:
            # It fits no page, so that the search must go on behind it.
            tally.pass_over()
            too_large.append(finding.path)
    return done(content, assembly.json(), tally.metadata(_pointed_to(too_large)))


def _pointed_to(paths: list[str]) -> dict[str, str]:
    """How to read what matches and was not shown."""
    # A longer one would be cut in the note.
    named = [path for path in paths if len(path) <= _LONGEST_PATH][:_MOST_PATHS]
    if not named:
        return {}
    return {"go_on": f"what matches is too large to show: proxy_read with path {', '.join(named)}"}
