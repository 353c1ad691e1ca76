"""A type is also the format of a file, whatever the document calls itself."""

import pytest

from headgate.knowledge.readers.format_registry import parse
from headgate.knowledge.search.filters import file_suffixes

TEXTS = ".md .markdown .mdown .mkd .txt .text .rst .log .html .htm .xhtml .csv .tsv .tab"


@pytest.mark.parametrize("ending", TEXTS.split())
def test_where_a_document_may_say_its_type_the_ending_counts_too(ending: str) -> None:
    said = parse(ending, b"---\ntype: policy\n---\n\nA rule.").doc_type
    assert (said == "policy") is (ending in file_suffixes(["Markdown", "text", "html", "csv", "policy"]))
