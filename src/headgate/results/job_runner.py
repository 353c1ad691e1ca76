"""Validates and runs any job on a stored result; imported lazily, because it loads every processor."""

from headgate.results.excerpt import excerpt
from headgate.results.jobs import ExcerptJob, Job, JobResult, ReadJob, SearchMode
from headgate.results.json_paths import parse_path
from headgate.results.parsed_result import ParsedResult
from headgate.results.pipeline import ProcessingError, Processor
from headgate.results.read_result import read_result
from headgate.results.regex import compile_pattern
from headgate.results.search.search_processor import SearchProcessor

# In the worst case every byte costs one step for each instruction of the pattern.
_SHORT_PROGRAM = 300
_LONGEST_PATHS = 10_000
_FEW_PATHS = 10
_BY_PATTERN = (SearchMode.REGEX, SearchMode.CONTEXT, SearchMode.STRUCTURE)


def run_job(job: Job, parsed: ParsedResult, query: Processor | None = None) -> JobResult:
    """The result of the job; a job that fails has the reason in `error`."""
    return excerpt(parsed, job) if isinstance(job, ExcerptJob) else read_result(parsed, job, query)


def validate_job(job: ReadJob) -> bool:
    """Whether a job is cheap on a small result; raises ProcessingError for a mistake, before any call."""
    parse_path(job.path)
    for part in (job.exploration, job.reading, job.query):
        if part is not None:
            parse_path(part.path)
    paths = (*job.projection.fields, *job.projection.exclude) if job.projection is not None else ()
    if sum(map(len, paths)) > _LONGEST_PATHS:
        raise ProcessingError(f"the fields have more than {_LONGEST_PATHS:,} characters together: name fewer")
    for path in paths:
        parse_path(path)
    if job.search is not None and job.search.mode not in _BY_PATTERN:
        # Searching an empty content validates the query.
        SearchProcessor().process(b"", job.search)
    elif job.search is not None:
        pattern = compile_pattern(
            job.search.pattern, case_insensitive=job.search.case_insensitive, multiline=job.search.multiline
        )
        quick = job.search.mode is SearchMode.REGEX and not job.search.multiline
        return quick and pattern.program_size <= _SHORT_PROGRAM
    return job.query is None and len(paths) <= _FEW_PATHS
