"""Searches JSON wherever it stands: in strings of JSON, and in texts with little else in them."""

from collections.abc import Callable, Iterator

import msgspec

from headgate.responses.content import Content, Scratch, is_json
from headgate.responses.embedded import MainJson, with_strings_opened
from headgate.responses.params import Search, SearchMode
from headgate.responses.processing import ProcessorResult
from headgate.responses.processors.lines import json_lines
from headgate.responses.processors.search.grep import GrepProcessor

Run = Callable[[Content], ProcessorResult]


def searched(
    run: Run, content: Content, main: MainJson | None, search: Search, scratch: Scratch
) -> tuple[ProcessorResult, Content]:
    """What `run` finds: in the JSON first, with its strings opened, then in the content as it is written.

    Nothing is lost by it: a pattern may match signs of a string as they are written, or the text around.
    The second of the two is the form of the content that it was found in.
    """
    first: tuple[ProcessorResult, Content] | None = None
    for form in _forms(content if main is None else main.content, content, scratch):
        made = run(form)
        if made.error is not None or made.metadata["search"]["matches"]:
            if main is not None and form is not content:
                made = _with_matches_around(made, main, search)
            return made, form
        first = first or (made, form)
    return first or (run(content), content)


def _forms(json: Content, content: Content, scratch: Scratch) -> Iterator[Content]:
    if is_json(json) or json_lines(json) is not None:
        unfolded = with_strings_opened(json, scratch)
        yield unfolded
        if unfolded is not json:
            yield json
        if json is content:
            return
    yield content


def _with_matches_around(made: ProcessorResult, main: MainJson, search: Search) -> ProcessorResult:
    """The result, with the number of matches in the text around the JSON, which it does not show."""
    if made.error is not None or search.mode is not SearchMode.REGEX or not main.around.strip():
        return made
    beside = GrepProcessor().process(main.around, search).metadata["matches"]
    if not beside:
        return made
    reason = f"{beside:,} more in the text around the JSON: proxy_read shows it with unit lines"
    found = {**made.metadata["search"], "reason": reason}
    return msgspec.structs.replace(made, metadata={**made.metadata, "search": found})
