"""A type is also the format of a file, whatever the document calls itself."""

import pytest

from headgate.documents.formats import parse
from headgate.knowledge.filtering import endings_of

TEXTS = ".md .markdown .mdown .mkd .txt .text .rst .log .html .htm .xhtml .csv .tsv .tab"


@pytest.mark.parametrize("ending", TEXTS.split())
def test_where_a_document_may_say_its_type_the_ending_counts_too(ending: str) -> None:
    said = parse(ending, b"---\ntype: policy\n---\n\nA rule.").doc_type
    assert (said == "policy") is (ending in endings_of(["Markdown", "text", "html", "csv", "policy"]))
