"""Which parser reads which files; the extension decides."""

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.text import is_empty

# Changes when a parser would find something else in the same bytes.
PARSER_VERSION: Final = "5"
# How the reason begins that installing something removes.
PACKAGE_MISSING: Final = "needs the package"

# The type of the documents in files with each extension.
_DOCUMENT_TYPES: Final = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".rst", ".log"), "text"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    ".docx": "docx",
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
}


def extension_of(name: str) -> str:
    """The extension in lower case with its dot; empty when there is none."""
    return PurePath(name).suffix.lower()


def known_extensions() -> list[str]:
    return sorted(_DOCUMENT_TYPES)


def is_known(extension: str) -> bool:
    return extension in _DOCUMENT_TYPES


def parse(extension: str, content: bytes) -> ParsedDocument:
    """The content of the file; raises DocumentUnreadable, and any error of a parser."""
    doc_type = _DOCUMENT_TYPES[extension]
    if is_empty(content):
        # A new file may be empty at first: that is no error.
        return ParsedDocument(sections=(), doc_type=doc_type)
    try:
        parser = _load_parser(extension)
    except ImportError as missing:
        raise DocumentUnreadable(
            f'{PACKAGE_MISSING} {missing.name!r} to be read: pip install "headgate-mcp[knowledge]"'
        ) from missing
    return parser(content)


def _load_parser(extension: str) -> Callable[[bytes], ParsedDocument]:
    """Import a parser with the first file of its type, because most need a package that may be missing."""
    match _DOCUMENT_TYPES[extension]:
        case "markdown":
            from headgate.knowledge.readers.markdown import parse as parser
        case "html":
            from headgate.knowledge.readers.html import parse as parser
        case "pdf":
            from headgate.knowledge.readers.pdf import parse as parser
        case "docx":
            from headgate.knowledge.readers.docx import parse as parser
        case "csv":
            from headgate.knowledge.readers.records import parse_table as parser
        case "json" if extension == ".json":
            from headgate.knowledge.readers.records import parse_json as parser
        case "json":
            from headgate.knowledge.readers.records import parse_json_lines as parser
        case _:
            from headgate.knowledge.readers.text import parse as parser
    return parser
