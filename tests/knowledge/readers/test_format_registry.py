"""Which parser reads a file, and what is said when its package is missing."""

import codecs
import sys

import pytest

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers.format_registry import extension_of, is_known, parse
from tests.knowledge.readers.sample_files import pdf, text_of


def test_extensions_decide_in_any_case() -> None:
    assert is_known(extension_of("docs/Report.PDF"))
    assert not is_known(extension_of("docs/photo.jpg"))
    assert not is_known(extension_of("Makefile"))


@pytest.mark.parametrize("content", [b"", b" \r\n", codecs.BOM_UTF8, codecs.BOM_UTF16_LE])
def test_an_empty_file_of_any_kind_is_a_document_without_text(content: bytes) -> None:
    kinds = {".txt": "text", ".html": "html", ".pdf": "pdf", ".docx": "docx", ".csv": "csv", ".json": "json"}
    for extension, doc_type in (kinds | {".md": "markdown", ".tsv": "csv", ".jsonl": "json"}).items():
        parsed = parse(extension, content)
        assert (parsed.sections, parsed.doc_type) == ((), doc_type)


@pytest.mark.parametrize(
    ("extension", "module", "package"),
    [(".pdf", "pdf", "pypdf"), (".docx", "docx", "docx"), (".html", "html", "selectolax.lexbor")],
)
def test_a_missing_package_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, extension: str, module: str, package: str
) -> None:
    monkeypatch.delitem(sys.modules, f"headgate.knowledge.readers.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DocumentUnreadable, match=r'pip install "headgate-mcp\[knowledge\]"'):
        parse(extension, pdf("A"))
    assert text_of(parse(".txt", b"other types are read")) == "other types are read"
