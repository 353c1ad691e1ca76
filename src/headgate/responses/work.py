"""Carries out any job on a stored result; loading this takes a while, and most calls never need it."""

from headgate.responses.excerpting import excerpt
from headgate.responses.jobs import Done, Excerpt, Job, Look
from headgate.responses.looking import look
from headgate.responses.opened import Opened
from headgate.responses.params import SearchMode
from headgate.responses.paths import parse
from headgate.responses.patterns import compiled
from headgate.responses.processing import Processor, Refused
from headgate.responses.processors.search.grep import GrepProcessor

# In the worst case every byte costs as much as the pattern is long.
_SHORT_PROGRAM = 300
_LONGEST_PATHS = 10_000
_FEW_PATHS = 10
_BY_PATTERN = (SearchMode.REGEX, SearchMode.CONTEXT, SearchMode.STRUCTURE)


def perform(job: Job, opened: Opened, query: Processor | None = None) -> Done:
    """What came of it; a job that cannot be done says why in `error`."""
    return excerpt(opened, job) if isinstance(job, Excerpt) else look(opened, job, query)


def check(job: Look) -> bool:
    """Look for mistakes before any tool is called; tells whether little content means little work.

    Raises Refused.
    """
    parse(job.path)
    for part in (job.exploration, job.reading, job.query):
        if part is not None:
            parse(part.path)
    paths = (*job.projection.fields, *job.projection.exclude) if job.projection is not None else ()
    if sum(map(len, paths)) > _LONGEST_PATHS:
        raise Refused(f"the fields have more than {_LONGEST_PATHS:,} characters together: name fewer")
    for path in paths:
        parse(path)
    if job.search is not None and job.search.mode not in _BY_PATTERN:
        # Of nothing there is nothing to find, but what is looked for is read.
        GrepProcessor().process(b"", job.search)
    elif job.search is not None:
        pattern = compiled(
            job.search.pattern,
            case_insensitive=job.search.case_insensitive,
            multiline=job.search.multiline,
        )
        quick = job.search.mode is SearchMode.REGEX and not job.search.multiline
        return quick and pattern.size <= _SHORT_PROGRAM
    return job.query is None and len(paths) <= _FEW_PATHS
