"""Which parser reads which files; the extension decides."""

import importlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.text import is_empty

# Changes when a parser would find something else in the same bytes.
PARSER_VERSION: Final = "5"
# How the reason begins that installing something removes.
PACKAGE_MISSING: Final = "needs the package"

# The module and the function, which are loaded when the first such file comes, and what they call a document.
_PARSERS: Final = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), ("markdown", "parse", "markdown")),
    **dict.fromkeys((".txt", ".text", ".rst", ".log"), ("text", "parse", "text")),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("html", "parse", "html")),
    ".pdf": ("pdf", "parse", "pdf"),
    ".docx": ("docx", "parse", "docx"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), ("table", "parse", "csv")),
    ".json": ("records", "parse", "json"),
    **dict.fromkeys((".jsonl", ".ndjson"), ("records", "parse_lines", "json")),
}


def extension_of(name: str) -> str:
    """The extension in lower case with its dot; empty when there is none."""
    return PurePath(name).suffix.lower()


def known_extensions() -> list[str]:
    """Those of files that can be read."""
    return sorted(_PARSERS)


def is_known(extension: str) -> bool:
    """Whether there is a parser for such files."""
    return extension in _PARSERS


def parse(extension: str, content: bytes) -> ParsedDocument:
    """What is in the file; raises Unreadable, and anything that a parser stumbles over."""
    module, function, doc_type = _PARSERS[extension]
    if is_empty(content):
        # Somebody may have begun it, so it is no mistake, whatever it is to become.
        return ParsedDocument(sections=(), doc_type=doc_type)
    try:
        parser: Callable[[bytes], ParsedDocument] = getattr(
            importlib.import_module(f"headgate.knowledge.readers.{module}"), function
        )
    except ImportError as missing:
        raise DocumentUnreadable(
            f'{PACKAGE_MISSING} {missing.name!r} to be read: pip install "headgate[knowledge]"'
        ) from missing
    return parser(content)
