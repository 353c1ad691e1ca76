"""How hard the requests that `headgate eval` makes up are, beside the labelled requests of public sets.

Usage: python scripts/compare_requests.py DIRECTORY, which has one directory for each set.
"""

import asyncio
import sys
from pathlib import Path

from headgate.catalog.evaluation.evaluation_report import report_on_catalog, report_on_set
from headgate.catalog.evaluation.labelled_set import RetrievalMetrics, read_labelled_set, run_queries
from headgate.catalog.evaluation.searchability import synthetic_queries_for
from headgate.catalog.finder import Finder
from headgate.catalog.search.tool_document import document_of


async def compare(directory: Path) -> tuple[RetrievalMetrics, RetrievalMetrics]:
    """The figures of the labelled requests, and those of the requests made up from the same tools."""
    tools, questions = ((directory / name).read_bytes() for name in ("tools.jsonl", "queries.jsonl"))
    labelled = read_labelled_set(tools.split(b"\n"), questions.split(b"\n"))
    documents = [document_of(one.server, one.name, one.public_name, one.definition) for one in labelled.items]
    asked = synthetic_queries_for(documents)
    finder = Finder(lambda: labelled.items)
    while len(finder) < len(documents):
        await finder.ready()
    answers = await run_queries(finder, [one.text for one in labelled.questions], lambda done: None)
    labels = report_on_set(directory.name, labelled, answers, version="", model=None)
    answers = await run_queries(finder, [one.text for one in asked], lambda done: None)
    made = report_on_catalog(documents, asked, answers, [], version="", model=None)
    return labels.metrics, made.metrics


def main(root: Path) -> None:
    """Print the table."""
    print("| set | labelled R@1 | R@5 | made up R@1 | R@5 |")
    print("|---|---|---|---|---|")
    for directory in sorted(path.parent for path in root.glob("*/queries.jsonl") if path.stat().st_size):
        labels, made = asyncio.run(compare(directory))
        figures = (labels.recall_at_1, labels.recall_at_5, made.recall_at_1, made.recall_at_5)
        print(f"| {directory.name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
